"""Trainers of blocks of users, which agree up to float32 rounding; `select_trainer` chooses."""
