"""Made-up records of two classes, for measuring time where what is learned does not matter."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedpriv.data.base import Corpus, DataSet, Records
from fedpriv.data.split import share, standardised, stratified
from fedpriv.streams import Streams
from fedpriv.tasks import Classification, Task

SIZE = 10_000


@dataclass(frozen=True)
class Artificial(DataSet):
    """10,000 records with 4 features, two of them mixtures of the others, as the timing study of Kato et al., Uldp-FL
    (PVLDB 2024), has them.

    Drawn by scikit-learn from the run's seed, so `root` is not used. Stratified 80/20 split, features standardised on
    the training part.
    """

    shape = (4,)
    outputs = 2

    @property
    def task(self) -> Task:
        return Classification()

    def load(self, streams: Streams) -> Corpus:
        from sklearn.datasets import make_classification

        seed = int(streams.generator("artificial records").integers(2**32))
        x, y = make_classification(SIZE, n_features=self.shape[0], n_classes=self.outputs, random_state=seed)
        train, test = stratified(y, share(SIZE, 0.2), streams.generator("train/test split"))
        x_train, x_test = standardised(x[train], x[test])
        return Corpus(Records(x_train, y[train].astype(np.int64)), Records(x_test, y[test].astype(np.int64)))
