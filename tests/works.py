"""A piece of work for tests."""

from __future__ import annotations

from typing import ClassVar

from fedpriv.util.work import Work


class Doubled(Work):
    """Doubles a number. runs: how often it was done alone. sizes: how many were done together, of
    all batches."""

    sizes: ClassVar[list[int]] = []

    def __init__(self, number, batch_key="doubled"):
        self.number, self._key, self.runs = number, batch_key, 0

    @property
    def batch_key(self):
        return self._key

    def run(self):
        self.runs += 1
        return 2 * self.number

    @classmethod
    def run_batch(cls, works):
        cls.sizes.append(len(works))
        return [2 * work.number for work in works]
