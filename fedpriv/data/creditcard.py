"""Credit-card fraud: 284,807 card payments, 492 of them frauds."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedpriv.data.base import Corpus, DataSet, Records
from fedpriv.data.files import RemoteFile, locate
from fedpriv.data.split import share, standardised, stratified
from fedpriv.data.tables import read_csv, refuse
from fedpriv.errors import DataError
from fedpriv.models.tasks import Classification, Task
from fedpriv.util.streams import Streams

FILE = RemoteFile(
    places=("creditcard.csv", "creditcard/creditcard.csv"),
    # OpenML data set 1597. The server writes the CSV form anew on request, so no checksum of it
    # lasts.
    urls=("https://www.openml.org/data/get_csv/1673544/phpKo8OWT",),
)

COLUMNS = ["Time", *(f"V{i}" for i in range(1, 29)), "Amount", "Class"]

GENUINE_PER_FRAUD = (24_166, 418)
"""Training mix of the Uldp-FL experiments: a tenth of the full file's genuine training rows, and
all its frauds."""


def split(labels: np.ndarray, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Row numbers of the kept training rows and of the test rows, for labels (n,) of 0 (genuine)
    and 1 (fraud).

    Stratified 85/15 split; then every training fraud stays and the genuine training rows are
    thinned at random to 24,166 for every 418 frauds. On the full file that is the paper's tenth:
    24,584 training and 42,722 test rows. A subset that is less imbalanced than this mix keeps all
    its genuine rows.
    """
    train, test = stratified(labels, share(len(labels), 0.15), rng)
    fraud = train[labels[train] == 1]
    genuine = train[labels[train] == 0]
    most, per = GENUINE_PER_FRAUD
    kept = rng.permutation(genuine)[: len(fraud) * most // per]
    return np.sort(np.concatenate([fraud, kept])), test


@dataclass(frozen=True)
class CreditCard(DataSet):
    """Card payments of two days (Dal Pozzolo et al. 2015): features Time, V1..V28 and Amount, label
    Class (1: fraud).

    Kato et al., Uldp-FL (PVLDB 2024): see `split`; the scaler is fitted on the whole 85% before
    thinning. Reads creditcard.csv or creditcard/creditcard.csv below `root` (the file of Kaggle or
    OpenML 1597, or a part of it).
    """

    shape = (30,)
    outputs = 2

    @property
    def task(self) -> Task:
        return Classification(main="balanced_accuracy")

    def load(self, streams: Streams) -> Corpus:
        path = locate(FILE, self.root)
        frame = read_csv(path, COLUMNS)
        labels = frame["Class"].to_numpy()
        refuse(path, frame, "Class", wrong=~np.isin(labels, (0, 1)), allowed="0 or 1")
        if min((labels == 0).sum(), (labels == 1).sum()) < 2:
            raise DataError(
                f"{path}: column Class: needs at least two genuine and two fraudulent rows"
            )
        x = frame[COLUMNS[:-1]].to_numpy()
        y = labels.astype(np.int64)
        kept, test = split(y, streams.generator("train/test split"))
        train = np.delete(
            np.arange(len(y)), test
        )  # the scaler also sees the genuine rows that are thinned out
        _, x_kept, x_test = standardised(x[train], x[kept], x[test])
        return Corpus(Records(x_kept, y[kept]), Records(x_test, y[test]))
