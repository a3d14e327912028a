"""Credit-card fraud: 284,807 card payments, of which 492 are frauds."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedpriv.data.base import Corpus, DataSet, Records
from fedpriv.data.files import RemoteFile, locate, warn_if_partial
from fedpriv.data.split import share, standardised, stratified
from fedpriv.data.tables import read_csv, refuse
from fedpriv.errors import DataError
from fedpriv.models.tasks import Classification
from fedpriv.util.streams import Streams

FILE = RemoteFile(
    places=("creditcard.csv", "creditcard/creditcard.csv"),
    # OpenML data set 1597. The server generates the CSV on each request, so its checksum varies.
    urls=("https://www.openml.org/data/get_csv/1673544/phpKo8OWT",),
)

COLUMNS = ["Time", *(f"V{i}" for i in range(1, 29)), "Amount", "Class"]

GENUINE_PER_FRAUD = (24_166, 418)
"""Training rows of the Uldp-FL experiments: a tenth of the full file's genuine training rows, and
all its frauds."""


def split(labels: np.ndarray, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Row numbers of the kept training rows and of the test rows.

    labels: (n,) 0 for genuine rows, 1 for frauds.

    After a stratified 85/15 split, all frauds stay in the training part. Of its genuine rows, a
    random subset stays: 24,166 for every 418 frauds. On the full file this is the paper's tenth,
    24,584 training and 42,722 test rows. A file with fewer genuine rows per fraud keeps all of
    them.
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

    Split as in Kato et al., Uldp-FL (PVLDB 2024), see `split`; the scaler is fitted on the whole
    85% before genuine rows are dropped. Reads creditcard.csv or creditcard/creditcard.csv below
    `root` (the file of Kaggle or OpenML 1597, or a part of it).
    """

    shape = (30,)
    outputs = 2
    task = Classification(main="balanced_accuracy")

    def load(self, streams: Streams) -> Corpus:
        path = locate(FILE, self.root)
        frame = read_csv(path, COLUMNS)
        warn_if_partial(path, len(frame))
        labels = frame["Class"].to_numpy()
        refuse(path, frame, "Class", wrong=~np.isin(labels, (0, 1)), allowed="0 or 1")
        if min((labels == 0).sum(), (labels == 1).sum()) < 2:
            raise DataError(f"{path}: column Class: needs two genuine and two fraudulent rows")
        x = frame[COLUMNS[:-1]].to_numpy()
        y = labels.astype(np.int64)
        kept, test = split(y, streams.generator("train/test split"))
        train = np.delete(np.arange(len(y)), test)  # with the genuine rows that are dropped
        _, x_kept, x_test = standardised(x[train], x[kept], x[test])
        return Corpus(Records(x_kept, y[kept]), Records(x_test, y[test]))
