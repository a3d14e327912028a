"""What every data set must do. Add a new one to DATA."""

import pickle
import subprocess
import sys
from dataclasses import fields

import numpy as np
import pytest
from refusals import refused

from fedpriv.data.adult import Adult
from fedpriv.data.cifar10 import Cifar10, Cifar10Clients
from fedpriv.data.creditcard import CreditCard
from fedpriv.data.embedded import Artificial, BreastCancer, BreastCancerSilos, Digits
from fedpriv.data.femnist import Femnist, MnistWriters
from fedpriv.data.heart_disease import HeartDisease
from fedpriv.data.mnist import Mnist
from fedpriv.data.mnist_odd_even import MnistOddEven
from fedpriv.data.shakespeare import Shakespeare
from fedpriv.data.tcga_brca import TcgaBrca
from fedpriv.errors import DataError
from fedpriv.util.streams import Streams

DATA = [BreastCancer, Digits, CreditCard, Mnist, HeartDisease, TcgaBrca, Adult, Artificial]
DATA += [
    MnistOddEven,
    Cifar10,
    BreastCancerSilos,
    Femnist,
    MnistWriters,
    Shakespeare,
    Cifar10Clients,
]
EMBEDDED = [BreastCancer, Digits, Artificial, BreastCancerSilos]
FIXED_SPLIT = [HeartDisease, TcgaBrca, Femnist, Shakespeare, Cifar10Clients]
RARE_LABELS = [Shakespeare]
"""Not every label is in every text."""
SMALLER = {MnistWriters: {"writers": 12}, Cifar10Clients: {"clients": 12}}


@pytest.fixture(params=DATA, ids=lambda cls: cls.__name__, scope="module")
def cls(request):
    return request.param


@pytest.fixture(params=["small_root", "real_root"], ids=["small", "real"], scope="module")
def data(cls, request):
    return cls(root=request.getfixturevalue(request.param), **SMALLER.get(cls, {}))


@pytest.fixture(scope="module")
def corpus(data):
    try:
        return data.load(Streams(0))
    except DataError as error:
        if "in this folder" in str(error):
            pytest.skip(str(error))
        raise


def test_records_have_the_promised_shapes_and_types(data, corpus):
    for part in (corpus.train, corpus.test):
        n = len(part)
        assert n > 0
        assert part.x.shape == (n, *data.shape)
        assert part.x.dtype == np.float32 or np.issubdtype(part.x.dtype, np.integer)
        assert part.x.dtype == corpus.train.x.dtype
        assert np.isfinite(part.x).all()
        assert np.isfinite(part.y).all()
        assert len(part.y) == n
        if data.outputs > 1:
            assert part.y.dtype == np.int64
            assert part.y.shape == (n,)
            assert part.y.min() >= 0
            assert part.y.max() < data.outputs
            if type(data) not in RARE_LABELS:
                assert set(np.unique(part.y)) >= {0, data.outputs - 1}
        else:
            assert part.y.dtype == np.float32
            assert part.y.shape in ((n,), (n, 2))


def test_silos_are_where_the_class_says(data, corpus):
    assert (corpus.train.silo is None) == (data.natural_silos is None)
    if data.natural_silos is not None:
        assert corpus.train.silo.dtype == np.int64
        assert np.bincount(corpus.train.silo).shape == (data.natural_silos,)
        assert np.bincount(corpus.train.silo).min() >= data.records_per_draw
    if corpus.train.user is not None:
        assert data.natural_users
        assert np.array_equal(np.unique(corpus.train.user), np.arange(corpus.train.user.max() + 1))
    if corpus.test.user is not None:
        assert set(corpus.test.user) <= set(corpus.train.user)


def test_the_task_takes_the_labels(data, corpus):
    import torch

    n = min(50, len(corpus.test))
    outputs = np.random.default_rng(0).normal(size=(n, data.outputs)).astype(np.float32)
    y = corpus.test.y[:n]
    loss = data.task.loss(torch.from_numpy(outputs), torch.from_numpy(y), torch.full((n,), 1 / n))
    assert loss.shape == ()
    assert np.isfinite(float(loss))
    metrics = data.task.metrics(outputs, y)
    assert next(iter(metrics)) == data.task.metric


def test_the_same_seed_gives_the_same_records_and_another_seed_another_split(data, corpus):
    again, other = data.load(Streams(0)), data.load(Streams(1))
    np.testing.assert_array_equal(corpus.train.x, again.train.x)
    np.testing.assert_array_equal(corpus.test.y, again.test.y)
    if corpus.train.user is not None:
        np.testing.assert_array_equal(corpus.train.user, again.train.user)
    assert np.array_equal(corpus.test.x, other.test.x) == (type(data) in FIXED_SPLIT)


@pytest.mark.parametrize("cls_without_twins", [BreastCancer, Digits, Mnist, MnistOddEven, Cifar10])
def test_no_record_is_in_both_splits(cls_without_twins, small_root):
    """Patients and payments may have equal values; tumours, digits and images do not."""
    corpus = cls_without_twins(small_root).load(Streams(0))
    train = {row.tobytes() for row in corpus.train.x}
    assert not any(row.tobytes() in train for row in corpus.test.x)


def test_it_is_configuration_that_pickles(cls):
    data = cls()
    assert pickle.loads(pickle.dumps(data)) == data
    assert fields(cls)[0].name == "root"


def test_configuration_costs_no_heavy_import():
    heavy = (
        "[m for m in ('torch', 'sklearn', 'pandas', 'matplotlib', 'lifelines', 'scipy') if m in "
        "sys.modules]"
    )
    modules = ", ".join(
        [
            *(cls.__module__ for cls in DATA),
            "fedpriv.data.allocate",
            "fedpriv.data.allocation_report",
        ]
    )
    code = f"import sys, {modules}; print({heavy})"
    assert (
        subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True
        ).stdout
        == "[]\n"
    )


def test_an_empty_folder_is_one_line(cls, tmp_path):
    if cls in EMBEDDED:
        assert len(cls(str(tmp_path)).load(Streams(0)).train) > 0
        return
    refused(lambda: cls(str(tmp_path)).load(Streams(0)), tmp_path)
