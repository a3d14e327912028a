"""Private weighting, Protocol 1 of Uldp-FL: see `aggregation`. All but `aggregation` and `sampling`
need gmpy2."""
