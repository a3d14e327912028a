"""Other projects' code beside ours. Each needs its own environment outside this repository."""
