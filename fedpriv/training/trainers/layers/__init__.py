"""Layers of many users at once, for the batched trainer."""
