"""What the released messages of a run reveal: (epsilon, delta) of recorded events, certified and as
a paper claims."""
