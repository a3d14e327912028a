"""Handwritten digits, 8x8 pixels: ten classes, and no folder or network needed."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedpriv.data import bundled
from fedpriv.data.base import Corpus, DataSet
from fedpriv.data.split import split_corpus
from fedpriv.models.tasks import Classification
from fedpriv.util.streams import Streams


@dataclass(frozen=True)
class Digits(DataSet):
    """1797 images of 8x8 grey values (Alpaydin, Kaynak 1998), pixels divided by 16.

    scikit-learn ships the file, so `root` is not used. Stratified 80/20 split: 1437 training and
    360 test records.
    """

    shape = (64,)
    outputs = 10
    task = Classification()

    def load(self, streams: Streams) -> Corpus:
        x, y = bundled.digits()
        return split_corpus((x / 16).astype(np.float32), y, streams, scale=False)
