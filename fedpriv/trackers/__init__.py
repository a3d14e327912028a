"""Trackers show a run's metrics elsewhere while it goes on: config group `tracker`."""
