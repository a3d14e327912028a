"""Made-up records of two classes, for measuring time where what is learned does not matter."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedpriv.data.base import Corpus, DataSet, Records
from fedpriv.data.split import share, standardised, stratified
from fedpriv.errors import require
from fedpriv.models.tasks import Classification, Task
from fedpriv.util.streams import Streams


@dataclass(frozen=True)
class Artificial(DataSet):
    """Records with 4 features, two of them mixtures of the others; 10,000 of them, as the timing
    study of Kato et al., Uldp-FL (PVLDB 2024), has them, or `size`.

    Drawn by scikit-learn from the run's seed, so `root` is not used. Stratified 80/20 split,
    features standardised on the training part.
    """

    size: int = 10_000

    shape = (4,)
    outputs = 2

    def __post_init__(self) -> None:
        require(
            self.size >= 10,
            "data.size",
            self.size,
            "10 records or more, two of which are for tests",
        )

    @property
    def task(self) -> Task:
        return Classification()

    def load(self, streams: Streams) -> Corpus:
        from sklearn.datasets import make_classification

        seed = int(streams.generator("artificial records").integers(2**32))
        x, y = make_classification(
            self.size, n_features=self.shape[0], n_classes=self.outputs, random_state=seed
        )
        train, test = stratified(y, share(self.size, 0.2), streams.generator("train/test split"))
        x_train, x_test = standardised(x[train], x[test])
        return Corpus(
            Records(x_train, y[train].astype(np.int64)), Records(x_test, y[test].astype(np.int64))
        )
