"""Record what a private training of another framework really does."""
