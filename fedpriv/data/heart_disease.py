"""Heart disease: patients of four hospitals, split and encoded as in FLamby."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from fedpriv.data.base import Corpus, DataSet, Records, pool
from fedpriv.data.files import RemoteFile, locate, warn_if_partial
from fedpriv.data.split import standardised
from fedpriv.data.tables import read_csv, refuse
from fedpriv.errors import DataError
from fedpriv.models.tasks import BinaryClassification
from fedpriv.util.streams import Streams

if TYPE_CHECKING:
    import pandas as pd

HOME = "https://archive.ics.uci.edu/ml/machine-learning-databases/heart-disease/"

SHA256 = {
    "cleveland": "a74b7efa387bc9d108d7d0115d831fe9b414b29ae7124f331b622b4efa0427c8",
    "hungarian": "d1ad108f785768cd3d7e82dc522e6f5a61eea93cccfb3a46ee8076f73fc3d796",
    "switzerland": "834a405ccf5b66ab4056bb77794adc8df0b7125186454c0a1d002d33c6c3b314",
    "va": "e7c93d8d0d2acdadfa4c5e8de768e2191e7f618b952e29623f1f0d5949ff6b8f",
}
"""Checksums of the centres' files, in FLamby's order."""

FILES = {
    centre: RemoteFile(
        places=(f"processed.{centre}.data", f"heart_disease/processed.{centre}.data"),
        urls=(f"{HOME}processed.{centre}.data",),
        digest=f"sha256:{sha256}",
    )
    for centre, sha256 in SHA256.items()
}

COLUMNS = ["age", "sex", "cp", "trestbps", "chol", "fbs", "restecg", "thalach", "exang", "oldpeak"]
COLUMNS += ["slope", "ca", "thal", "num"]
DROPPED = ["slope", "ca", "thal"]
"""Columns 10 to 12, unknown for most patients outside Cleveland."""
CATEGORIES = {"cp": (1, 2, 3, 4), "restecg": (0, 1, 2)}
"""Categorical columns 2 and 6; the first category has no column of its own."""

RANGES = {
    "age": (0, 130),
    "trestbps": (0, 400),
    "chol": (0, 1000),
    "thalach": (0, 400),
    "oldpeak": (-20, 20),
}
"""Plausible values: years, mm Hg, mg/dl, beats per minute, mm of depression."""
LEVELS = {**CATEGORIES, "sex": (0, 1), "fbs": (0, 1), "exang": (0, 1), "num": (0, 1, 2, 3, 4)}
"""Allowed values of the other columns."""


@dataclass(frozen=True)
class HeartDisease(DataSet):
    """Patients of Cleveland, Hungary, Switzerland and Long Beach VA (Janosi et al. 1988): 13
    features, label num > 0.

    FLamby's Fed-Heart-Disease (Ogier du Terrail et al., NeurIPS 2022). Rows with unknown values are
    dropped. The 66/34 split of each centre is FLamby's (random state 43), so it does not depend on
    the run's seed. Each centre standardises with its own training mean and standard deviation.
    There are 199, 172, 30 and 85 training records; the test records of all centres are pooled. One
    record is one patient. Reads heart_disease/processed.<centre>.data below `root`.

    pooled_test: whether test records are scaled by mean and deviation of all centres' training
        records, as in FLamby's pooled data set, on which Uldp-FL's authors test. Training records
        keep the scale of their centre.
    """

    pooled_test: bool = False

    shape = (13,)
    outputs = 1
    task = BinaryClassification()
    natural_silos = 4
    natural_users = True
    users_of_one_silo = True
    disjoint_test = True  # one record is one patient

    def load(self, streams: Streams) -> Corpus:
        centres = [read_centre(locate(file, self.root)) for file in FILES.values()]
        scaled = [
            list(zip(standardised(*(x for x, _ in parts), ddof=1), (y for _, y in parts)))
            for parts in centres
        ]
        train, test = (pool(part) for part in zip(*scaled))
        x = test[0]
        if self.pooled_test:
            (pooled, _), (raw, _) = (map(np.concatenate, zip(*part)) for part in zip(*centres))
            x = standardised(pooled, raw, ddof=1)[1]
        return Corpus(Records(*train), Records(x, test[1]))


def read_centre(path: Path) -> list[tuple[np.ndarray, np.ndarray]]:
    """Features, not yet scaled, and labels of one centre's training and test records."""
    from sklearn.model_selection import train_test_split

    frame = read_csv(path, COLUMNS, header=False, missing="?")
    warn_if_partial(path, len(frame))
    frame = frame.drop(columns=DROPPED).dropna()
    for name in map(str, frame.columns):
        low, high = RANGES.get(name, (-np.inf, np.inf))
        known = LEVELS.get(name)
        allowed = f"{low} to {high}" if known is None else ", ".join(map(str, known))
        wrong = ~(frame[name].between(low, high) if known is None else frame[name].isin(known))
        refuse(path, frame, name, wrong=wrong, allowed=allowed)
    y = (frame["num"].to_numpy() > 0).astype(np.float32)
    x = _encoded(frame.drop(columns="num"))
    if len(y) < 3:
        raise DataError(f"{path}: {len(y)} complete rows, too few to split")
    levels, counts = np.unique(y, return_counts=True)
    labels = y if len(levels) > 1 and counts.min() > 2 else None
    parts = train_test_split(
        np.arange(len(y)), train_size=0.66, test_size=0.34, random_state=43, stratify=labels
    )
    rows = [np.sort(part) for part in parts]
    return [(x[part], y[part]) for part in rows]


def _encoded(frame: pd.DataFrame) -> np.ndarray:
    """Features (n, 13): eight numbers, then a 0/1 column for each category but the first."""
    columns = [frame[name].to_numpy() for name in frame.columns if name not in CATEGORIES]
    for name, categories in CATEGORIES.items():
        columns += [(frame[name] == category).to_numpy(np.float64) for category in categories[1:]]
    return np.stack(columns, axis=1)
