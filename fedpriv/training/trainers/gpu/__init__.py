"""Code that is compiled for a GPU while a program runs."""
