"""scikit-learn's own files, held against what it reads from them."""

import subprocess
import sys

import numpy as np
import pytest
from sklearn.datasets import load_breast_cancer, load_digits

from fedpriv.data import bundled
from fedpriv.errors import DataError


@pytest.mark.parametrize(
    ("ours", "theirs"), [(bundled.breast_cancer, load_breast_cancer), (bundled.digits, load_digits)]
)
def test_the_same_bits_as_scikit_learn_gives(ours, theirs):
    for found, expected in zip(ours(), theirs(return_X_y=True), strict=True):
        np.testing.assert_array_equal(found, expected)


def test_scikit_learn_is_not_loaded():
    words = (
        "from fedpriv.data.bundled import digits; digits(); import sys; sys.exit('sklearn' in "
        "sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", words], check=False).returncode == 0


def test_a_file_that_is_not_there_is_named():
    with pytest.raises(DataError, match=r"datasets/data/tulips\.csv: missing"):
        bundled.bundled("tulips.csv", header=True)
