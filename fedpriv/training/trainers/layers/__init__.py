"""Layers of many users at once, for the stacked trainer."""
