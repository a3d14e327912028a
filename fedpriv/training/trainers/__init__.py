"""Three ways to train a block of users, which agree up to float32 rounding: `select_trainers` picks
one."""
