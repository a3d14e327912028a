"""Local training in C++, compiled for this very machine when it is first used."""
