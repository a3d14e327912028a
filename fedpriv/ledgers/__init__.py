"""What a data set has paid, in all runs."""
