"""Generated records of two classes, for measuring time where the learned model does not matter."""

from __future__ import annotations

from dataclasses import dataclass

from fedpriv.data.base import Corpus, DataSet
from fedpriv.data.split import split_corpus
from fedpriv.errors import require
from fedpriv.models.tasks import Classification
from fedpriv.util.streams import Streams


@dataclass(frozen=True)
class Artificial(DataSet):
    """Records with 4 features, two of them linear mixtures of the other two.

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
