"""Privacy claims of other people's settings: what they are worth."""
