"""Local training: every user of a silo gets a model of its own, and all of them train at once."""
