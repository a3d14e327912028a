"""A trained model as a folder that somebody else can use, and its use."""
