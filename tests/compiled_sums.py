"""Clipped sums in C++ for tests: taken away, or there whatever earlier tests have left."""

from fedpriv.training import clipped
from fedpriv.training.layers.mapping import Unmapped
from fedpriv.training.trainers.compiled.clipped_sum import clipped_sum
from fedpriv.training.trainers.compiled.library import library


def with_compiler(monkeypatch):
    if library() is None:
        library.cache_clear()
    monkeypatch.setattr(clipped, "clipped_sum", clipped_sum)


def without_compiler(monkeypatch):
    monkeypatch.setattr(clipped, "clipped_sum", lambda *_: Unmapped("it needs a C++ compiler"))
