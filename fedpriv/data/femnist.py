"""FEMNIST: NIST's digits by writer, from LEAF's files; and MNIST with invented writers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from fedpriv.data.base import Corpus, DataSet, Records, pool
from fedpriv.data.dealing import deal_equally, hold_out_of_each
from fedpriv.data.leaf import LeafFolder
from fedpriv.data.mnist import normalised, read_all
from fedpriv.errors import DataError, require
from fedpriv.models.tasks import Classification
from fedpriv.util.streams import Streams

NAME = "femnist"
DIGITS = 10
CLASSES = 62
"""Digits, capital and small letters."""
SIDE = 28
LEAST = 10
"""A writer needs this number of digits in the training and test part together."""


@dataclass(frozen=True)
class Femnist(DataSet):
    """The digits among NIST's characters (Caldas et al., LEAF, 2018), 28x28 grey values from 0
    (ink) to 1.

    Users are the writers of 10 digits or more. The test records are those that LEAF holds out of
    every writer's digits. Jeon et al. (SecureD-FL, 2021), Table I: 3,483 users, 351,333 and 40,668
    records. Reads femnist/data/train/*.json and femnist/data/test/*.json below `root`, the output
    of LEAF's preprocessing with `-t sample --tf 0.9`.
    """

    shape = (1, SIDE, SIDE)
    outputs = DIGITS
    task = Classification()
    natural_users = True

    def load(self, streams: Streams) -> Corpus:
        folder = LeafFolder(NAME, self.root)
        writers = [
            parts for parts in folder.read_users(_digits) if sum(len(y) for _, y in parts) >= LEAST
        ]
        if not any(len(y) for _, (_, y) in writers):
            raise DataError(f"{folder.path}: no digits of writers with {LEAST} or more")
        pooled = (pool(part) for part in zip(*writers))
        return Corpus(*(Records(x, y, user=user) for x, y, user in pooled))


def _digits(x: list[Any], y: list[Any]) -> tuple[np.ndarray, np.ndarray]:
    """One writer's digits: images (n, 1, 28, 28) float32 and labels (n,) int64."""
    fits = all(isinstance(row, list) and len(row) == SIDE**2 for row in x)
    if not fits or not all(type(label) is int and 0 <= label < CLASSES for label in y):
        raise ValueError(f"expected {SIDE}x{SIDE} images with labels from 0 to {CLASSES - 1}")
    numbers = all(set(map(type, row)) <= {int, float} for row in x)
    images = np.array(x if numbers else [], dtype=np.float32)
    if not numbers or not ((images >= 0) & (images <= 1)).all():
        raise ValueError("expected pixels from 0 to 1")
    images = images.reshape(len(x), 1, SIDE, SIDE)
    labels = np.array(y, dtype=np.int64)
    return images[labels < DIGITS], labels[labels < DIGITS]


@dataclass(frozen=True)
class MnistWriters(DataSet):
    """MNIST with invented writers: every user gets equally many random images and holds out a
    tenth of them for tests.

    A substitute where the files of `Femnist` are missing: the digits are real, but all users write
    alike. Reads MNIST/raw/*-ubyte (or .gz) below `root`.

    writers: number of users.
    images: number of images used of the 70,000, None for all.
    """

    writers: int = 620
    images: int | None = None

    shape = (1, SIDE, SIDE)
    outputs = DIGITS
    task = Classification()
    natural_users = True

    def __post_init__(self) -> None:
        require(self.writers >= 1, "data.writers", self.writers, "a positive number of users")
        least = 2 * self.writers
        allowed = f"{least} or more, two for each of {self.writers} writers, or null"
        require(self.images is None or self.images >= least, "data.images", self.images, allowed)

    def load(self, streams: Streams) -> Corpus:
        images, labels, _ = read_all(self.root)
        n = len(labels)
        allowed = f"at most {n // 2}, because there are {n} images"
        require(2 * self.writers <= n, "data.writers", self.writers, allowed)
        allowed = f"at most {n}, or null"
        require(self.images is None or self.images <= n, "data.images", self.images, allowed)
        kept = streams.generator("images").permutation(n)[: self.images]
        user = deal_equally(len(kept), self.writers, streams.generator("writers"))
        trains = hold_out_of_each(
            user, 0.1, lambda u: streams.generator("train/test split", party=f"user{u}")
        )
        x = normalised(images[kept])
        y = labels[kept].astype(np.int64)
        return Corpus(*(Records(x[rows], y[rows], user=user[rows]) for rows in (trains, ~trains)))
