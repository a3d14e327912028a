"""Wisconsin breast cancer (diagnostic): the default data set, which needs no folder and no
network."""

from __future__ import annotations

from dataclasses import dataclass

from fedpriv.data import bundled
from fedpriv.data.base import Corpus, DataSet
from fedpriv.data.split import split_corpus
from fedpriv.models.tasks import Classification
from fedpriv.util.streams import Streams


@dataclass(frozen=True)
class BreastCancer(DataSet):
    """569 tumours, 30 measurements each, malignant or benign (Wolberg, Street, Mangasarian 1995).

    scikit-learn ships the file, so `root` is not used. Stratified 80/20 split: 455 training and 114
    test records; features are standardised on the training part.
    """

    shape = (30,)
    outputs = 2
    task = Classification()

    def load(self, streams: Streams) -> Corpus:
        return split_corpus(*bundled.breast_cancer(), streams, scale=True)
