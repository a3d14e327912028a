"""Small projects to start from."""
