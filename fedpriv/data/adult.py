"""Adult: 48,842 answers to a census, and whether a person earns more than 50,000 dollars a year."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fedpriv.data.base import Corpus, DataSet, Records
from fedpriv.data.files import RemoteFile, locate
from fedpriv.data.split import standardised
from fedpriv.errors import DataError
from fedpriv.models.tasks import Classification, Task
from fedpriv.util.streams import Streams

HOME = "https://archive.ics.uci.edu/ml/machine-learning-databases/adult/"

FILES = tuple(
    RemoteFile((name, f"adult/{name}"), (f"{HOME}{name}",), f"sha256:{sha256}")
    for name, sha256 in (
        ("adult.data", "5b00264637dbfec36bdeaab5676b0b309ff9eb788d63554ca0a249491c86603d"),
        ("adult.test", "a2a9044bc167a35b2361efbabec64e89d69ce82d9790d2980119aac5fd7e9c05"),
    )
)

COLUMNS = [
    "age",
    "workclass",
    "fnlwgt",
    "education",
    "education-num",
    "marital-status",
    "occupation",
    "relationship",
]
COLUMNS += [
    "race",
    "sex",
    "capital-gain",
    "capital-loss",
    "hours-per-week",
    "native-country",
    "income",
]

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
"""The questionnaire's answers, spelt as in the files; `?` is an answer too. 102 in all."""

INCOME = ("<=50K", ">50K")

DEVICES = 16
"""Devices of the published experiments: as many records as do not fill them equally are left
out.
"""


@dataclass(frozen=True)
class Adult(DataSet):
    """Answers to the 1994 census (Kohavi and Becker): 6 standardised numbers and 102 one-hot
    categories; label >50K.

    Hu, Guo, Gong: Concentrated differentially private and utility preserving federated learning:
    both files are pooled and dealt out to 16 devices of 3,052 records (10 are left over), of which
    each keeps a tenth for tests and a tenth for validation. Here the 16 * 305 test records are
    pooled, and allocator=equal deals out the other 43,952 and holds back the validation records.
    Reads adult/adult.data and adult/adult.test below `root`.
    """

    shape = (108,)
    outputs = 2

    @property
    def task(self) -> Task:
        return Classification()

    def load(self, streams: Streams) -> Corpus:
        parts = [_read(locate(file, self.root)) for file in FILES]
        numbers, answers, y = (np.concatenate(part) for part in zip(*parts))
        each = len(y) // DEVICES
        if each < 10:
            raise DataError(
                f"{FILES[0].places[0]}, {FILES[1].places[0]}: {len(y)} records, too few for "
                f"{DEVICES} devices"
            )
        order = streams.generator("train/test split").permutation(len(y))[: DEVICES * each]
        test, train = np.split(order, [DEVICES * (each // 10)])
        train_numbers, test_numbers = standardised(numbers[train], numbers[test])
        return Corpus(
            Records(np.hstack([train_numbers, answers[train]]), y[train]),
            Records(np.hstack([test_numbers, answers[test]]), y[test]),
        )


def _read(path: Path) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Numbers (n, 6) float64, one-hot answers (n, 102) float32 and labels (n,) int64 of one file.

    The files have a space after each comma and a blank last line; adult.test begins with a comment
    and ends its labels with a dot. Raises DataError with the line and the column.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{path}: not a readable table: {error}") from error
    lines: list[int] = []
    rows: list[list[str]] = []
    for number, line in enumerate(text.splitlines(), start=1):
        if line.strip() and not line.startswith("|"):
            cells = [cell.strip() for cell in line.split(",")]
            if len(cells) != len(COLUMNS):
                raise DataError(
                    f"{path}: line {number}: {len(cells)} values instead of {len(COLUMNS)}"
                )
            lines.append(number)
            rows.append(cells)
    if not rows:
        raise DataError(f"{path}: no records")
    columns = dict(zip(COLUMNS, zip(*rows)))
    incomes = [income.removesuffix(".") for income in columns.pop("income")]
    y = _places(path, lines, "income", cells=incomes, known=INCOME)
    numbers = []
    answers = []
    for name, answered in columns.items():
        if name in CATEGORIES:
            known = CATEGORIES[name].split()
            answers.append(
                np.eye(len(known), dtype=np.float32)[
                    _places(path, lines, name, cells=answered, known=known)
                ]
            )
        else:
            numbers.append(_numbers(path, lines, name, cells=answered))
    return np.stack(numbers, axis=1), np.hstack(answers), y


def _places(
    path: Path, lines: list[int], name: str, *, cells: Sequence[str], known: Sequence[str]
) -> np.ndarray:
    """Index of each cell among the `known` values, (n,) int64."""
    index = {value: place for place, value in enumerate(known)}
    places = np.array([index.get(cell, -1) for cell in cells])
    if places.min() < 0:
        row = int(places.argmin())
        raise DataError(
            f"{path}: line {lines[row]}, column {name}: {cells[row]:.40} is not one of "
            f"{', '.join(known)}"
        )
    return places


def _numbers(path: Path, lines: list[int], name: str, *, cells: Sequence[str]) -> np.ndarray:
    """Whole numbers as float64, (n,)."""
    for line, cell in zip(lines, cells):
        if not (cell.isascii() and cell.isdigit()):
            raise DataError(
                f"{path}: line {line}, column {name}: {cell or 'nothing':.40} is not a whole number"
            )
    return np.array(cells, dtype=np.float64)
