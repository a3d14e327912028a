import numpy as np
import pytest

from fedpriv.data.artificial import Artificial
from fedpriv.data.breast_cancer import BreastCancer
from fedpriv.data.digits import Digits
from fedpriv.errors import ConfigError
from fedpriv.util.streams import Streams


@pytest.mark.parametrize(
    ("data", "train", "test"),
    [(BreastCancer(), 455, 114), (Digits(), 1437, 360), (Artificial(), 8000, 2000)],
)
def test_sizes_and_class_shares(data, train, test):
    corpus = data.load(Streams(0))
    assert (len(corpus.train), len(corpus.test)) == (train, test)
    shares = [
        np.bincount(part.y, minlength=data.outputs) / len(part)
        for part in (corpus.train, corpus.test)
    ]
    assert np.abs(shares[0] - shares[1]).max() < 0.01


def test_breast_cancer_is_standardised_on_its_training_part():
    train = BreastCancer().load(Streams(0)).train.x
    np.testing.assert_allclose(train.mean(axis=0), 0, atol=1e-6)
    np.testing.assert_allclose(train.std(axis=0), 1, atol=1e-5)


def test_digits_are_grey_values_from_0_to_1():
    x = Digits().load(Streams(0)).train.x
    assert (x.min(), x.max()) == (0, 1)
    assert np.array_equal(x * 16, np.round(x * 16))


def test_made_up_records_are_as_many_as_wanted():
    corpus = Artificial(size=50).load(Streams(0))
    assert (len(corpus.train), len(corpus.test)) == (40, 10)
    with pytest.raises(ConfigError, match=r"data\.size=9"):
        Artificial(size=9)
