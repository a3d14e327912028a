"""One organisation's part in a study of several: its own records, keys, budget and decisions."""
