"""Other projects' code beside ours; each lives in an environment of its own, outside this
repository."""
