"""Data sets without a folder: sizes, scales, and scikit-learn's own files, held against what it
reads from them."""

import subprocess
import sys

import numpy as np
import pytest
from refusals import refused
from sklearn.datasets import load_breast_cancer, load_digits

from fedpriv.data.embedded import Artificial, BreastCancer, BreastCancerSilos, Digits, bundled
from fedpriv.util.streams import Streams


@pytest.mark.parametrize(
    ("name", "header", "theirs"),
    [("breast_cancer.csv", True, load_breast_cancer), ("digits.csv.gz", False, load_digits)],
)
def test_the_same_bits_as_scikit_learn_gives(name, header, theirs):
    for found, expected in zip(bundled(name, header=header), theirs(return_X_y=True), strict=True):
        np.testing.assert_array_equal(found, expected)


def test_scikit_learn_is_not_loaded():
    words = (
        "from fedpriv.data.embedded import bundled; bundled('digits.csv.gz', header=False); import "
        "sys; sys.exit('sklearn' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", words], check=False).returncode == 0


def test_what_is_not_there_is_named():
    refused(lambda: bundled("tulips.csv", header=True), "datasets/data/tulips.csv: missing")
    refused(lambda: Artificial(size=9), "data.size=9")


@pytest.mark.parametrize(
    ("data", "train", "test"),
    [
        (BreastCancer(), 455, 114),
        (BreastCancerSilos(), 455, 114),
        (Digits(), 1437, 360),
        (Artificial(), 8000, 2000),
        (Artificial(size=50), 40, 10),
    ],
)
def test_sizes_and_class_shares(data, train, test):
    corpus = data.load(Streams(0))
    assert (len(corpus.train), len(corpus.test)) == (train, test)
    shares = [
        np.bincount(part.y, minlength=data.outputs) / len(part)
        for part in (corpus.train, corpus.test)
    ]
    assert np.abs(shares[0] - shares[1]).max() < 0.01


def test_silos_are_the_labels_and_differ_in_size():
    corpus = BreastCancerSilos().load(Streams(0))
    np.testing.assert_array_equal(corpus.train.silo, corpus.train.y)
    assert np.bincount(corpus.train.silo).tolist() == [170, 285]
    assert np.bincount(corpus.test.y).tolist() == [42, 72]
    assert load_breast_cancer().target_names.tolist() == ["malignant", "benign"]


def test_features_are_standardised_on_the_training_part_of_all_silos():
    train = BreastCancerSilos().load(Streams(0)).train
    np.testing.assert_allclose(train.x.mean(axis=0), 0, atol=1e-6)
    np.testing.assert_allclose(train.x.std(axis=0), 1, atol=1e-5)
    assert abs(train.x[train.silo == 0].mean()) > 0.3


def test_digits_are_grey_values_from_0_to_1():
    x = Digits().load(Streams(0)).train.x
    assert (x.min(), x.max()) == (0, 1)
    assert np.array_equal(x * 16, np.round(x * 16))
