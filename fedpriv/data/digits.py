"""Handwritten digits, 8x8: an embedded ten-class data set, which needs no folder and no network."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedpriv.data import bundled
from fedpriv.data.base import Corpus, DataSet, Records
from fedpriv.data.split import share, stratified
from fedpriv.models.tasks import Classification, Task
from fedpriv.util.streams import Streams


@dataclass(frozen=True)
class Digits(DataSet):
    """1797 images of 8x8 grey values (Alpaydin, Kaynak 1998), pixels divided by 16.

    Comes with scikit-learn, so `root` is not used. Stratified 80/20 split: 1437 training and 360
    test records.
    """

    shape = (64,)
    outputs = 10

    @property
    def task(self) -> Task:
        return Classification()

    def load(self, streams: Streams) -> Corpus:
        x, y = bundled.digits()
        x = (x / 16).astype(np.float32)
        y = y.astype(np.int64)
        train, test = stratified(y, share(len(y), 0.2), streams.generator("train/test split"))
        return Corpus(Records(x[train], y[train]), Records(x[test], y[test]))
