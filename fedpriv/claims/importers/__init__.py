"""Read other frameworks' settings into a draft of a claim. Nothing is executed."""
