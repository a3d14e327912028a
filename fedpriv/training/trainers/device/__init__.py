"""Training on a GPU by one kernel: a block of its threads trains one user from the first step to
the last."""
