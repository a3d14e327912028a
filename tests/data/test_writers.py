"""Users made up for MNIST and CIFAR-10: even, disjoint, and each in one silo with its test
records.
"""

import numpy as np
import pytest

from fedpriv.data.cifar10 import Cifar10Clients
from fedpriv.data.femnist import MnistWriters
from fedpriv.data.mnist import read_part
from fedpriv.errors import ConfigError
from fedpriv.runtime import prepare
from fedpriv.testing import experiment
from fedpriv.util.streams import Streams


def test_every_image_has_one_writer_who_holds_a_tenth_back(small_root):
    corpus = MnistWriters(small_root, writers=20).load(Streams(0))
    assert np.bincount(corpus.train.user).tolist() == [36] * 20
    assert np.bincount(corpus.test.user).tolist() == [4] * 20
    images = np.concatenate([read_part(part, small_root)[0] for part in ("train", "t10k")])
    found = np.concatenate([corpus.train.x, corpus.test.x])
    assert (
        len({image.tobytes() for image in found})
        == len({image.tobytes() for image in images})
        == 800
    )


def test_fewer_images(small_root):
    corpus = MnistWriters(small_root, writers=20, images=100).load(Streams(0))
    assert (len(corpus.train), len(corpus.test)) == (80, 20)


@pytest.mark.parametrize(
    ("writers", "images", "key"),
    [(0, None, "writers"), (60, 100, "images"), (500, None, "writers")],
)
def test_impossible_numbers_are_refused(small_root, writers, images, key):
    with pytest.raises(ConfigError, match=f"data.{key}"):
        MnistWriters(small_root, writers, images).load(Streams(0))


def test_clients_hold_equally_many_training_and_test_images(small_root):
    corpus = Cifar10Clients(small_root, clients=20).load(Streams(0))
    assert np.bincount(corpus.train.user).tolist() == [5] * 20
    assert np.bincount(corpus.test.user).tolist() == [2] * 20


def test_test_records_are_those_of_the_silos_own_users(small_root):
    words = (
        "data=mnist_writers",
        f"data.root={small_root}",
        "preset.n_users=18",
        "model=linear",
        "algo=local_only",
    )
    exp = experiment(*words)
    with prepare(exp) as prepared:
        test = prepared.evaluation.test
        corpus = exp.data.load(exp.streams)
        allocation = exp.allocator.allocate(corpus.train, exp.data, exp.streams)
        for user in range(18):
            [home] = set(allocation.silo[allocation.user == user])
            assert set(test.silo[corpus.test.user == user]) == {home}
