"""Real vectors as integers whose sums are exact."""
