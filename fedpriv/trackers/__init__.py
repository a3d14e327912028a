"""Where a run's numbers are shown while it goes on, besides its folder: config group `tracker`."""
