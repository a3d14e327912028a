import os

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import chisquare

from fedpriv.crypto import secret_sharing
from fedpriv.crypto.secret_sharing import (
    LIMBS,
    PRIME,
    BadSharesError,
    Reconstruction,
    random_elements,
    share,
)


@given(st.binary(min_size=32, max_size=32), st.integers(1, 12), st.data())
def test_any_threshold_of_shares_reconstructs(secret, parties, data):
    threshold = data.draw(st.integers(1, parties))
    points = data.draw(st.permutations(range(1, parties + 1)))[:threshold]
    shares = share(secret, threshold, parties)
    rows = shares[[point - 1 for point in points]]
    assert Reconstruction.at(points).secrets(rows[None]) == [secret]


def test_weights_serve_many_secrets():
    secrets = [os.urandom(32) for _ in range(20)]
    shares = np.stack([share(secret, 5, 9) for secret in secrets])
    assert Reconstruction.at([9, 2, 4, 5, 7]).secrets(shares[:, [8, 1, 3, 4, 6]]) == secrets


def test_shares_are_the_polynomial_computed_one_by_one(monkeypatch):
    # Oracle: Horner's rule in Python's integers.
    fixed = np.random.default_rng(0).integers(0, PRIME, (3, LIMBS)).astype(np.uint64)
    monkeypatch.setattr(secret_sharing, "random_elements", lambda shape: fixed)
    secret = bytes(range(200, 232))
    number = int.from_bytes(secret, "little")
    shares = share(secret, 4, 6)
    for i in range(6):
        for k in range(LIMBS):
            coefficients = [(number >> (30 * k)) % 2**30, *(int(row[k]) for row in fixed)]
            assert (
                shares[i, k]
                == sum(c * (i + 1) ** power for power, c in enumerate(coefficients)) % PRIME
            )


def test_fewer_shares_tell_nothing(monkeypatch):
    # On the toy field of 5 elements two secrets give three parties' pairs of shares the same
    # (uniform) distribution.
    monkeypatch.setattr(secret_sharing, "PRIME", 5)
    monkeypatch.setattr(
        secret_sharing, "random_elements", lambda shape: rng.integers(0, 5, shape).astype(np.uint64)
    )
    secret_sharing.powers.cache_clear()
    rng = np.random.default_rng(1)
    for secret in (0, 3):
        seen = np.zeros(25)
        for _ in range(5000):
            first, second = share(secret.to_bytes(32, "little"), 3, 4)[[0, 2], 0]
            seen[5 * int(first) + int(second)] += 1
        assert chisquare(seen).pvalue > 1e-4
    secret_sharing.powers.cache_clear()


def test_elements_are_drawn_by_rejection(monkeypatch):
    draws = iter(
        [np.array([PRIME, 7, 2**31 + 3], dtype=np.uint32), np.array([PRIME - 1], dtype=np.uint32)]
    )
    monkeypatch.setattr(secret_sharing.os, "urandom", lambda size: next(draws).tobytes())
    assert random_elements((3,)).tolist() == [7, 3, PRIME - 1]


def of_one(*limbs):
    """What a single share of threshold 1 reconstructs: the limbs themselves."""
    return Reconstruction.at([1]).secrets(
        np.array([[list(limbs) + [0] * (LIMBS - len(limbs))]], dtype=np.uint32)
    )


def test_what_is_no_secret_of_32_bytes_is_refused():
    """256 bits are eight limbs of 30 and one of 16; the largest of each, and one more."""
    full = [2**30 - 1] * 8
    assert of_one(*full, 2**16 - 1) == [b"\xff" * 32]
    assert of_one(1) == [(1).to_bytes(32, "little")]
    for limbs in ([2**30], [PRIME - 1], [0] * 8 + [2**16], [0] * 8 + [2**30 - 1]):
        with pytest.raises(BadSharesError, match="one secret"):
            of_one(*limbs)


@pytest.mark.parametrize(
    "bad", [[2**30] + [0] * 8, [0] * 8 + [2**16]], ids=("limb too large", "number too large")
)
@pytest.mark.parametrize("at", [0, 2])
def test_one_that_is_no_secret_is_refused_among_others(bad: list[int], at: int):
    shares = np.zeros((3, 1, LIMBS), dtype=np.uint32)
    shares[at, 0] = bad
    with pytest.raises(BadSharesError, match="one secret"):
        Reconstruction.at([1]).secrets(shares)
