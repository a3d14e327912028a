"""Clipped sums in C++, taken away as on a machine without a compiler."""

from fedpriv.training import clipped
from fedpriv.training.layers.mapping import Unmapped


def without_compiler(monkeypatch):
    monkeypatch.setattr(clipped, "clipped_sum", lambda *_: Unmapped("it needs a C++ compiler"))
