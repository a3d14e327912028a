"""Counts of an allocation, against loops."""

import numpy as np

from fedpriv.data.allocate import Allocation
from fedpriv.data.base import Corpus, Records
from fedpriv.data.shared import digest_allocation, digest_arrays, digest_corpus, digest_files

USER = np.array([0, 0, 2, 2, 2, 1])
SILO = np.array([1, 1, 0, 1, 1, 1])
TRAINS = np.array([True, True, True, True, False, False])


def test_records_that_do_not_train_are_not_counted():
    allocation = Allocation(USER, SILO, TRAINS, n_users=4, n_silos=3)
    assert allocation.silo_sizes().tolist() == [1, 3, 0]
    assert allocation.counts().tolist() == [[0, 0, 1, 0], [2, 0, 1, 0], [0, 0, 0, 0]]


def test_the_digest_of_an_allocation_follows_each_part():
    def digest(user=USER, silo=SILO, trains=TRAINS, n_users=4, n_silos=3):
        return digest_allocation(Allocation(user, silo, trains, n_users, n_silos))

    others = [digest(USER[::-1]), digest(silo=SILO[::-1]), digest(trains=~TRAINS)]
    others += [digest(n_users=5), digest(n_silos=4)]
    assert len({digest(), *others}) == 6
    assert digest() == digest()


def test_the_digest_of_records_follows_each_array():
    x, y = np.arange(6, dtype=np.float32).reshape(3, 2), np.array([0, 1, 1])
    silo = np.array([0, 0, 1])

    def digest(x=x, y=y, silo=None, user=None, test=y):
        return digest_corpus(Corpus(Records(x, y, silo, user), Records(x, test)))

    others = [digest(x + 1), digest(y=1 - y), digest(silo=silo), digest(user=silo)]
    others += [digest(test=1 - y), digest(x.astype(np.float64)), digest(x.reshape(3, 2, 1))]
    assert len({digest(), *others}) == 8
    assert digest_arrays([np.asfortranarray(x)]) == digest_arrays([x])
    assert digest_arrays([x[:0]]) != digest_arrays([None])


def test_the_digest_of_files_is_that_of_their_contents(tmp_path):
    for folder in ("one", "other"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "a").write_text("a")
        (tmp_path / folder / "b").write_text("b")
    one, other = (sorted((tmp_path / folder).iterdir()) for folder in ("one", "other"))
    assert digest_files(one) == digest_files(other[::-1])
    assert digest_files([*one, one[0]]) == digest_files(one)
    (tmp_path / "one" / "c").write_text("a")
    assert digest_files([*one, tmp_path / "one" / "c"]) != digest_files(one)
    (tmp_path / "one" / "a").write_text("ab")
    assert digest_files(one) != digest_files(other)
