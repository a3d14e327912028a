"""The layers that training computes by code of its own."""
