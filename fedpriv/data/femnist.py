"""FEMNIST: digits of NIST by the person who wrote them, in LEAF's files; and MNIST with writers
made up."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedpriv.data.base import Corpus, DataSet, Records
from fedpriv.data.dealing import deal_equally, hold_out_of_each
from fedpriv.data.leaf import LeafFolder, UserRecords
from fedpriv.data.mnist import normalised, read_all
from fedpriv.errors import DataError, require
from fedpriv.models.tasks import Classification, Task
from fedpriv.util.streams import Streams

NAME = "femnist"
DIGITS = 10
SIDE = 28
LEAST = 10
"""Digits that a writer must have, training and test together."""


@dataclass(frozen=True)
class Femnist(DataSet):
    """The digits among NIST's characters (Caldas et al., LEAF, 2018), 28x28 grey values from 0
    (ink) to 1.

    Users are the writers, those of 10 digits or more; the test records are those that LEAF holds
    back of every writer. Jeon et al. (SecureD-FL, 2021), Table I: 3,483 users, 351,333 and 40,668
    records. Reads femnist/data/train/*.json and femnist/data/test/*.json below `root`, as LEAF's
    preprocessing leaves them with `-t sample --tf 0.9`.
    """

    shape = (1, SIDE, SIDE)
    outputs = DIGITS
    natural_users = True

    @property
    def task(self) -> Task:
        return Classification()

    def load(self, streams: Streams) -> Corpus:
        folder = LeafFolder(NAME, self.root)
        train, test = (_digits(folder, part) for part in ("train", "test"))
        nobody = np.empty(0, dtype=np.int64)
        written = {
            name: len(y) + len(test.get(name, (0, nobody))[1]) for name, (_, y) in train.items()
        }
        users = [name for name in sorted(train) if len(train[name][1]) and written[name] >= LEAST]
        parts = [_records(part, users) for part in (train, test)]
        if not all(map(len, parts)):
            raise DataError(f"{folder.path}: no digits of writers with {LEAST} or more")
        return Corpus(*parts)


def _digits(folder: LeafFolder, part: str) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Each writer's digits: images (n, 784) float32 and labels (n,) int64."""
    found = {}
    for name, (x, y) in _checked(folder, part).items():
        images = np.array(x, dtype=np.float32).reshape(len(x), -1)
        labels = np.array(y, dtype=np.int64)
        found[name] = images[labels < DIGITS], labels[labels < DIGITS]
    return found


def _checked(folder: LeafFolder, part: str) -> UserRecords:
    users = folder.read(part)
    for name, (x, y) in users.items():
        images = all(isinstance(row, list) and len(row) == SIDE**2 for row in x)
        if not images or not all(isinstance(label, int) and label >= 0 for label in y):
            raise DataError(
                f"{folder.path / part}: user {name} has records that are no {SIDE}x{SIDE} images "
                "with labels"
            )
    return users


def _records(part: dict[str, tuple[np.ndarray, np.ndarray]], users: list[str]) -> Records:
    """The users' records one after the other."""
    own = [
        (number, *part[name])
        for number, name in enumerate(users)
        if name in part and len(part[name][1])
    ]
    if not own:
        return Records(np.empty((0, 1, SIDE, SIDE), np.float32), np.empty(0, np.int64))
    x, y = (np.concatenate([records[at] for records in own]) for at in (1, 2))
    user = np.repeat([number for number, *_ in own], [len(labels) for *_, labels in own])
    return Records(x.reshape(-1, 1, SIDE, SIDE), y, user=user)


@dataclass(frozen=True)
class MnistWriters(DataSet):
    """MNIST with writers made up: images dealt at random to users of equally many, of whom each
    holds a tenth back.

    It stands in where the files of `Femnist` are absent: real digits, but users who write alike.

    writers: number of users.
    images: how many of the 70,000 there are, None for all. The test records are those held back.
        Reads MNIST/raw/*-ubyte (or .gz) below `root`.
    """

    writers: int = 620
    images: int | None = None

    shape = (1, SIDE, SIDE)
    outputs = DIGITS
    natural_users = True

    def __post_init__(self) -> None:
        require(self.writers >= 1, "data.writers", self.writers, "a positive number of users")
        least = 2 * self.writers
        enough = self.images is None or self.images >= least
        require(
            enough,
            "data.images",
            self.images,
            f"{least} or more, two for each of {self.writers} writers, or null",
        )

    @property
    def task(self) -> Task:
        return Classification()

    def load(self, streams: Streams) -> Corpus:
        images, labels, _ = read_all(self.root)
        n = len(labels)
        least = 2 * self.writers
        require(least <= n, "data.writers", self.writers, f"at most {n // 2}: there are {n} images")
        require(
            self.images is None or self.images <= n,
            "data.images",
            self.images,
            f"at most {n}, or null",
        )
        kept = streams.generator("images").permutation(n)[: self.images]
        user = deal_equally(len(kept), self.writers, streams.generator("writers"))
        trains = hold_out_of_each(
            user, 0.1, lambda u: streams.generator("train/test split", party=f"user{u}")
        )
        x = normalised(images[kept])
        y = labels[kept].astype(np.int64)
        return Corpus(*(Records(x[rows], y[rows], user=user[rows]) for rows in (trains, ~trains)))
