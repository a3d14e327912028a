"""Tables that scikit-learn ships, read without importing scikit-learn: the import takes longer than
two hundred rounds on these tables."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import numpy as np

from fedpriv.errors import DataError


def bundled(name: str, *, header: bool) -> tuple[np.ndarray, np.ndarray]:
    """Features (n, d) and labels (n,), float64, of a file in scikit-learn's data folder. The last
    column holds the labels. Raises DataError if scikit-learn lacks the file."""
    spec = find_spec("sklearn")
    path = Path((spec.origin if spec else None) or "sklearn").parent / "datasets" / "data" / name
    if not path.exists():
        raise DataError(f"{path}: missing; install another version of scikit-learn")
    table = np.loadtxt(path, delimiter=",", skiprows=int(header), dtype=np.float64)
    return table[:, :-1], table[:, -1]


def breast_cancer() -> tuple[np.ndarray, np.ndarray]:
    """Wisconsin breast cancer (diagnostic): measurements (569, 30); label 0 is malignant, 1
    benign."""
    return bundled("breast_cancer.csv", header=True)


def digits() -> tuple[np.ndarray, np.ndarray]:
    """Handwritten digits: grey values (1797, 64) from 0 to 16; labels 0 to 9."""
    return bundled("digits.csv.gz", header=False)
