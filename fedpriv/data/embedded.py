"""Data sets that need no folder and no network.

Tables that scikit-learn ships are read without importing scikit-learn: the import takes longer than
two hundred rounds on these tables.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import numpy as np

from fedpriv.data.base import Corpus, DataSet, Records
from fedpriv.data.split import split_corpus
from fedpriv.errors import DataError, require
from fedpriv.models.tasks import Classification
from fedpriv.util.streams import Streams


@cache
def bundled(name: str, *, header: bool) -> tuple[np.ndarray, np.ndarray]:
    """Features (n, d) and labels (n,), float64, of a file in scikit-learn's data folder. The last
    column holds the labels. Raises DataError if scikit-learn lacks the file."""
    spec = find_spec("sklearn")
    path = Path((spec.origin if spec else None) or "sklearn").parent / "datasets" / "data" / name
    if not path.exists():
        raise DataError(f"{path}: missing; install another version of scikit-learn")
    table = np.loadtxt(path, delimiter=",", skiprows=int(header), dtype=np.float64)
    table.setflags(write=False)
    return table[:, :-1], table[:, -1]


@dataclass(frozen=True)
class BreastCancer(DataSet):
    """569 tumours, 30 measurements each, malignant (0) or benign (1), in Wisconsin (Wolberg,
    Street, Mangasarian 1995): the default data set.

    scikit-learn ships the file, so `root` is not used. Stratified 80/20 split: 455 training and 114
    test records; features are standardised on the training part.
    """

    shape = (30,)
    outputs = 2
    task = Classification()

    def load(self, streams: Streams) -> Corpus:
        return split_corpus(*bundled("breast_cancer.csv", header=True), streams, scale=True)


@dataclass(frozen=True)
class BreastCancerSilos(BreastCancer):
    """569 tumours, 30 measurements each; silo 0 holds the malignant ones, silo 1 the benign ones.

    Lowy, Ghafelebashi, Razaviyayn (AISTATS 2023), Appendix H.4: 80/20 in each silo, 170 and 285
    training records, 114 test records. The paper calibrates its noise for the smaller silo (170
    records), which has the smaller batches. Noise calibrated by the certificate gives both silos
    the same epsilon. Features are standardised on the training records of both silos: the paper
    does not say how, and each silo's own scale would hide the difference between the classes.
    scikit-learn ships the file, so `root` is not used.
    """

    natural_silos = 2

    def load(self, streams: Streams) -> Corpus:
        corpus = super().load(streams)
        train = corpus.train
        return Corpus(Records(train.x, train.y, silo=train.y), corpus.test)


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
        x, y = bundled("digits.csv.gz", header=False)
        return split_corpus((x / 16).astype(np.float32), y, streams, scale=False)


@dataclass(frozen=True)
class Artificial(DataSet):
    """Records of two classes with 4 features, two of them linear mixtures of the other two, for
    measuring time where the learned model does not matter.

    The timing study of Kato et al., Uldp-FL (PVLDB 2024), has 10,000 records. scikit-learn draws
    them from the run's seed, so `root` is not used. Stratified 80/20 split; features are
    standardised on the training part.

    size: number of records.
    """

    size: int = 10_000

    shape = (4,)
    outputs = 2
    task = Classification()

    def __post_init__(self) -> None:
        enough = "10 records or more, two of which are for tests"
        require(self.size >= 10, "data.size", self.size, enough)

    def load(self, streams: Streams) -> Corpus:
        from sklearn.datasets import make_classification

        seed = int(streams.generator("artificial records").integers(2**32))
        x, y = make_classification(
            self.size, n_features=self.shape[0], n_classes=self.outputs, random_state=seed
        )
        return split_corpus(x, y, streams, scale=True)
