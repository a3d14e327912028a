"""Tables that come with scikit-learn, read without loading it: that takes longer than two hundred
rounds on them."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import numpy as np

from fedpriv.errors import DataError


def bundled(name: str, *, header: bool) -> tuple[np.ndarray, np.ndarray]:
    """Features (n, d) and labels (n,), float64 each, of a file among scikit-learn's data, whose
    last column are labels. Raises DataError where scikit-learn does not have it."""
    spec = find_spec("sklearn")
    path = Path((spec.origin if spec else None) or "sklearn").parent / "datasets" / "data" / name
    if not path.exists():
        raise DataError(f"{path} is missing; another scikit-learn has it")
    table = np.loadtxt(path, delimiter=",", skiprows=int(header), dtype=np.float64)
    return table[:, :-1], table[:, -1]


def breast_cancer() -> tuple[np.ndarray, np.ndarray]:
    """Wisconsin breast cancer (diagnostic): (569, 30) measurements; 0 is malignant, 1 benign."""
    return bundled("breast_cancer.csv", header=True)


def digits() -> tuple[np.ndarray, np.ndarray]:
    """Handwritten digits: (1797, 64) grey values from 0 to 16; 0 to 9."""
    return bundled("digits.csv.gz", header=False)
