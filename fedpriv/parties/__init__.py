"""Participants of an exchange: how they are described, what they say, and how much of it."""
