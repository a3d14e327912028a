"""TCGA-BRCA: survival of breast-cancer patients in six regions, as in FLamby."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from fedpriv.data.base import Corpus, DataSet, Records
from fedpriv.data.files import RemoteFile, locate, warn_if_partial
from fedpriv.data.tables import read_csv, refuse
from fedpriv.errors import DataError
from fedpriv.models.tasks import CoxRegression
from fedpriv.util.streams import Streams

if TYPE_CHECKING:
    import pandas as pd

FLAMBY = "https://raw.githubusercontent.com/owkin/FLamby/"

PATIENTS = RemoteFile(
    places=("brca.csv", "tcga_brca/brca.csv"),
    urls=(
        f"{FLAMBY}57a7e5c8f2bc26929c239e217ed3a41d6252bd53/flamby/datasets/fed_tcga_brca/brca.csv",
    ),
    digest="sha256:07cb53423f7d579d33cfdbf2cba57b2aee75318b85866c68ce39a75b1f1ba020",
)
SPLIT = RemoteFile(
    places=("train_test_split.csv", "tcga_brca/train_test_split.csv"),
    urls=(
        f"{FLAMBY}0fc059bbb55dacaa1afa0bf8e053df1d33b8dd4a/flamby/datasets/fed_tcga_brca/"
        "dataset_creation_scripts/train_test_split.csv",
    ),
    digest="sha256:5075d0e6f55daaab30dd86ef86b6ae04f08add8e3dc28f3404029d4edf3d4ab4",
)
FILES = PATIENTS, SPLIT


@dataclass(frozen=True)
class TcgaBrca(DataSet):
    """1,096 patients with 39 covariates; labels are (event, days of follow-up).

    FLamby's Fed-TCGA-BRCA (Ogier du Terrail et al., NeurIPS 2022) with its fixed split: 248, 156,
    164, 129, 129 and 40 training records in six regions. The 222 test records of all regions are
    pooled, and the eight patients without a region are left out. Covariates are not scaled. One
    record is one patient. Reads tcga_brca/brca.csv and tcga_brca/train_test_split.csv below `root`.
    """

    shape = (39,)
    outputs = 1
    task = CoxRegression()
    natural_silos = 6
    natural_users = True
    users_of_one_silo = True
    records_per_draw = 2
    disjoint_test = True  # one record is one patient

    def load(self, streams: Streams) -> Corpus:
        path = locate(PATIENTS, self.root)
        split_path = locate(SPLIT, self.root)
        patients = _patients(path)
        split = _split(split_path)
        lacking = split.index.difference(patients["pid"].tolist())
        if len(lacking):
            raise DataError(f"{path}: patient {lacking[0]} of {split_path.name} is missing")
        patients = patients[patients["pid"].isin(split.index)]
        part = split.loc[patients["pid"], "fold2"]
        x = patients.drop(columns=["pid", "E", "T"]).to_numpy(np.float32)
        y = patients[["E", "T"]].to_numpy(np.float32)
        silo = part.str[-1].to_numpy().astype(np.int64)
        train = part.str.startswith("train").to_numpy(bool)
        for name, rows in (("train", train), ("test", ~train)):
            if not rows.any():
                raise DataError(f"{split_path}: column fold2: no patient of the {name} part")
        return Corpus(Records(x[train], y[train], silo[train]), Records(x[~train], y[~train]))


def _split(path: Path) -> pd.DataFrame:
    """Column fold2 (train_0 to test_5) by patient."""
    frame = read_csv(path, ["pid", "fold", "fold2"], text=("pid", "fold", "fold2"))
    warn_if_partial(path, len(frame))
    malformed = ~frame["fold2"].str.fullmatch(f"(train|test)_[0-{TcgaBrca.natural_silos - 1}]")
    refuse(path, frame, "fold2", wrong=malformed, allowed="train_0 to test_5")
    refuse(path, frame, "pid", wrong=frame["pid"].duplicated(), allowed="each patient once")
    return frame.set_index("pid")


def _patients(path: Path) -> pd.DataFrame:
    frame = read_csv(path, text=("pid",))
    warn_if_partial(path, len(frame))
    first, *covariates, event, time = frame.columns if len(frame.columns) > 2 else ("", "", "")
    if (first, len(covariates), event, time) != ("pid", 39, "E", "T"):
        raise DataError(f"{path}: line 1: wrong columns: not pid, 39 covariates, E, T")
    refuse(path, frame, "E", wrong=~frame["E"].isin([0, 1]), allowed="0 or 1")
    refuse(path, frame, "T", wrong=frame["T"] < 0, allowed="zero or more days")
    refuse(path, frame, "pid", wrong=frame["pid"].duplicated(), allowed="each patient once")
    return frame
