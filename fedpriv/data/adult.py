"""Adult: 48,842 census answers; the label is whether a person earns more than 50,000 dollars a
year."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from fedpriv.data.base import Corpus, DataSet, Records
from fedpriv.data.files import RemoteFile, locate, warn_if_partial
from fedpriv.data.split import standardised
from fedpriv.data.tables import read_csv, refuse
from fedpriv.errors import DataError
from fedpriv.models.tasks import Classification
from fedpriv.util.streams import Streams

if TYPE_CHECKING:
    import pandas as pd

HOME = "https://archive.ics.uci.edu/ml/machine-learning-databases/adult/"

FILES = tuple(
    RemoteFile((name, f"adult/{name}"), (f"{HOME}{name}",), f"sha256:{sha256}")
    for name, sha256 in (
        ("adult.data", "5b00264637dbfec36bdeaab5676b0b309ff9eb788d63554ca0a249491c86603d"),
        ("adult.test", "a2a9044bc167a35b2361efbabec64e89d69ce82d9790d2980119aac5fd7e9c05"),
    )
)

NAMES = """
    age workclass fnlwgt education education-num marital-status occupation relationship
    race sex capital-gain capital-loss hours-per-week native-country income
"""
COLUMNS = NAMES.split()

CATEGORIES = {
    "workclass": """
        ? Federal-gov Local-gov Never-worked Private Self-emp-inc Self-emp-not-inc
        State-gov Without-pay
    """,
    "education": """
        Preschool 1st-4th 5th-6th 7th-8th 9th 10th 11th 12th HS-grad Some-college
        Assoc-voc Assoc-acdm Bachelors Masters Prof-school Doctorate
    """,
    "marital-status": """
        Divorced Married-AF-spouse Married-civ-spouse Married-spouse-absent Never-married
        Separated Widowed
    """,
    "occupation": """
        ? Adm-clerical Armed-Forces Craft-repair Exec-managerial Farming-fishing
        Handlers-cleaners Machine-op-inspct Other-service Priv-house-serv Prof-specialty
        Protective-serv Sales Tech-support Transport-moving
    """,
    "relationship": "Husband Not-in-family Other-relative Own-child Unmarried Wife",
    "race": "Amer-Indian-Eskimo Asian-Pac-Islander Black Other White",
    "sex": "Female Male",
    "native-country": """
        ? Cambodia Canada China Columbia Cuba Dominican-Republic Ecuador El-Salvador
        England France Germany Greece Guatemala Haiti Holand-Netherlands Honduras Hong
        Hungary India Iran Ireland Italy Jamaica Japan Laos Mexico Nicaragua
        Outlying-US(Guam-USVI-etc) Peru Philippines Poland Portugal Puerto-Rico Scotland
        South Taiwan Thailand Trinadad&Tobago United-States Vietnam Yugoslavia
    """,
}
"""Possible answers, 102 in all, spelt as in the files; `?` is one of them."""

INCOME = ["<=50K", ">50K"]

DEVICES = 16
"""Number of devices in the published experiments. All get equally many records; the remainder is
left out."""


@dataclass(frozen=True)
class Adult(DataSet):
    """Answers to the 1994 census (Kohavi and Becker): 6 standardised numbers and 102 one-hot
    categories; label 1 for an income above 50,000 dollars.

    Hu, Guo, Gong: Concentrated differentially private and utility preserving federated learning.
    There, 16 devices share both files: 3,052 records each (10 remain), a tenth of them for tests
    and a tenth for validation. Here, the 16 * 305 test records form the central test part;
    allocator=equal assigns the other 43,952 and holds out the validation records. Reads
    adult/adult.data and adult/adult.test below `root`.
    """

    shape = (108,)
    outputs = 2
    task = Classification()

    def load(self, streams: Streams) -> Corpus:
        parts = [read_answers(locate(file, self.root)) for file in FILES]
        numbers, answers, y = (np.concatenate(part) for part in zip(*parts))
        each = len(y) // DEVICES
        if each < 10:
            names = ", ".join(file.places[0] for file in FILES)
            raise DataError(f"{names}: {len(y)} records, too few for {DEVICES} devices")
        order = streams.generator("train/test split").permutation(len(y))[: DEVICES * each]
        test, train = np.split(order, [DEVICES * (each // 10)])
        train_numbers, test_numbers = standardised(numbers[train], numbers[test])
        return Corpus(
            Records(np.hstack([train_numbers, answers[train]]), y[train]),
            Records(np.hstack([test_numbers, answers[test]]), y[test]),
        )


def read_answers(path: Path) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Numbers (n, 6) float64, one-hot answers (n, 102) float32 and labels (n,) int64 of one file.

    adult.test begins with a comment and ends its labels with a dot. Raises DataError.
    """
    frame = read_csv(path, COLUMNS, header=False, text=(*CATEGORIES, "income"), comment="|")
    warn_if_partial(path, len(frame))
    frame["income"] = frame["income"].str.removesuffix(".")
    numbers, answers = [], []
    for name in COLUMNS[:-1]:
        if name in CATEGORIES:
            known = CATEGORIES[name].split()
            places = _places(path, frame, name, known)
            answers.append(np.eye(len(known), dtype=np.float32)[places])
        else:
            wrong = (frame[name] < 0) | (frame[name] % 1 != 0)
            refuse(path, frame, name, wrong=wrong, allowed="whole numbers")
            numbers.append(frame[name].to_numpy())
    y = _places(path, frame, "income", INCOME)
    return np.stack(numbers, axis=1), np.hstack(answers), y


def _places(path: Path, frame: pd.DataFrame, name: str, known: list[str]) -> np.ndarray:
    """Index of each value of column `name` among the `known` ones, (n,) int64."""
    column = frame[name].str.strip()
    refuse(path, frame, name, wrong=~column.isin(known), allowed=", ".join(known))
    index = {value: place for place, value in enumerate(known)}
    return column.map(index).to_numpy(np.int64)
