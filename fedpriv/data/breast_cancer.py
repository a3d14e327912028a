"""Wisconsin breast cancer (diagnostic): the embedded default, which needs no folder and no
network.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedpriv.data import bundled
from fedpriv.data.base import Corpus, DataSet, Records
from fedpriv.data.split import share, standardised, stratified
from fedpriv.models.tasks import Classification, Task
from fedpriv.util.streams import Streams


@dataclass(frozen=True)
class BreastCancer(DataSet):
    """569 tumours, 30 measurements each, malignant or benign (Wolberg, Street, Mangasarian 1995).

    Comes with scikit-learn, so `root` is not used. Stratified 80/20 split, features standardised on
    the training part: 455 training and 114 test records.
    """

    shape = (30,)
    outputs = 2

    @property
    def task(self) -> Task:
        return Classification()

    def load(self, streams: Streams) -> Corpus:
        x, y = bundled.breast_cancer()
        train, test = stratified(y, share(len(y), 0.2), streams.generator("train/test split"))
        x_train, x_test = standardised(x[train], x[test])
        return Corpus(
            Records(x_train, y[train].astype(np.int64)), Records(x_test, y[test].astype(np.int64))
        )
