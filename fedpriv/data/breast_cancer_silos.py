"""Wisconsin breast cancer in two silos, malignant and benign."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from fedpriv.data import bundled
from fedpriv.data.base import Corpus, DataSet, Records
from fedpriv.data.split import share, standardised, stratified
from fedpriv.errors import require
from fedpriv.models.tasks import Classification, Task
from fedpriv.util.streams import Streams

TOGETHER: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "silo": lambda silo: silo,
    "all": np.zeros_like,
}
"""Whose records are scaled together: a group for each record, of their silos (n,)."""


@dataclass(frozen=True)
class BreastCancerSilos(DataSet):
    """569 tumours, 30 measurements each; silo 0 holds the malignant ones, silo 1 the benign ones.

    Lowy, Ghafelebashi, Razaviyayn (AISTATS 2023), Appendix H.4: 80/20 in each silo, 170 and 285
    training records, 114 test records. The paper's noise is made for the smaller silo, of 170
    records, whose batches are the smaller ones; noise by the certificate keeps the same epsilon in
    both. Comes with scikit-learn, so `root` is not used.

    standardise: `all` scales with mean and deviation of all training records. `silo` scales each
    silo's records with its own; the paper does not say which. A test record is then scaled as its
    label says, and as both classes have mean zero and deviation one, not even training without
    privacy separates them (45 % errors after 25 rounds).
    """

    standardise: str = "all"

    shape = (30,)
    outputs = 2
    natural_silos = 2

    def __post_init__(self) -> None:
        require(
            self.standardise in TOGETHER,
            "data.standardise",
            self.standardise,
            " or ".join(TOGETHER),
        )

    @property
    def task(self) -> Task:
        return Classification()

    @property
    def not_covered(self) -> tuple[str, ...]:
        return (
            ("test records are scaled as their labels say",) if self.standardise == "silo" else ()
        )

    def load(self, streams: Streams) -> Corpus:
        x, y = bundled.breast_cancer()
        y = y.astype(np.int64)
        train, test = stratified(y, share(len(y), 0.2), streams.generator("train/test split"))
        group = TOGETHER[self.standardise](y)
        scaled = np.empty(x.shape, dtype=np.float32)
        for number in np.unique(group):
            own = [rows[group[rows] == number] for rows in (train, test)]
            scaled[own[0]], scaled[own[1]] = standardised(x[own[0]], x[own[1]])
        return Corpus(
            Records(scaled[train], y[train], silo=y[train]), Records(scaled[test], y[test])
        )
