"""Secrets in t-of-n shares (A. Shamir, How to share a secret, CACM 1979) over the field of 2^31 - 1
elements.

A secret of 32 bytes is cut into limbs of 30 bits; each limb is the constant term of its own random
polynomial of degree t - 1, and party number i (from 1) holds the values at i. All limbs and all
parties are one matrix product, done in float64 on 16-bit halves, where every partial sum is an
integer below 2^53.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

PRIME = 2**31 - 1
SECRET_BYTES = 32
LIMB_BITS = 30
LIMBS = -(-8 * SECRET_BYTES // LIMB_BITS)
MAX_TERMS = 2**20
"""Products of 16-bit halves that a float64 adds exactly: 2^20 * 2^32 < 2^53."""


class BadSharesError(ValueError):
    """The shares do not come from one secret."""


def share(secret: bytes, threshold: int, parties: int) -> np.ndarray:
    """Shares of a 32-byte secret, (parties, LIMBS) uint32; row i belongs to point i + 1. Any
    `threshold` rows give the secret; fewer reveal nothing. `parties` are fewer than `MAX_TERMS`."""
    number = int.from_bytes(secret, "little")
    limbs = [(number >> (LIMB_BITS * k)) & (2**LIMB_BITS - 1) for k in range(LIMBS)]
    coefficients = np.vstack(
        [np.array([limbs], dtype=np.uint64), random_elements((threshold - 1, LIMBS))]
    )
    return _product(powers(parties, threshold), _halves(coefficients)).astype(np.uint32)


def random_elements(shape: tuple[int, ...]) -> np.ndarray:
    """Uniform field elements, uint64, from the operating system. 2^31 - 1 is rejected: reducing it
    would make zero twice as likely."""
    count = int(np.prod(shape))
    kept = np.empty(0, dtype=np.uint64)
    while len(kept) < count:
        drawn = np.frombuffer(os.urandom(4 * (count - len(kept))), dtype=np.uint32) & np.uint32(
            PRIME
        )
        kept = np.concatenate([kept, drawn[drawn < PRIME].astype(np.uint64)])
    return kept.reshape(shape)


@dataclass(frozen=True)
class Reconstruction:
    """Reconstructs any number of secrets from shares at one set of points.

    weights: Lagrange's weights at zero, (t,) field elements.
    """

    weights: np.ndarray

    @staticmethod
    def at(points: list[int]) -> Reconstruction:
        """For distinct points, at least as many as the threshold, each from 1 to 2^31 - 2."""
        x = np.array(points, dtype=np.uint64)
        differences = (x[None, :] + np.uint64(PRIME) - x[:, None]) % PRIME  # x_j - x_i in row i
        np.fill_diagonal(differences, 1)
        denominators = _multiply_rows(differences) * x % PRIME
        return Reconstruction(_multiply_rows(x[None, :]) * _inverse(denominators) % PRIME)

    def secrets(self, shares: np.ndarray) -> list[bytes]:
        """k secrets from (k, t, LIMBS) shares, in the order of the points. Raises BadSharesError
        when a result is no secret. Other wrong shares give a wrong secret."""
        k, t, limbs = shares.shape
        columns = np.moveaxis(shares, 1, 0).reshape(t, k * limbs).astype(np.uint64)
        values = _product(_halves(self.weights[None, :]), _halves(columns)).reshape(k, limbs)
        numbers = [
            sum(int(limb) << (LIMB_BITS * j) for j, limb in enumerate(row)) for row in values
        ]
        if (values >> LIMB_BITS).any() or any(number >> (8 * SECRET_BYTES) for number in numbers):
            raise BadSharesError("the shares do not come from one secret")
        return [number.to_bytes(SECRET_BYTES, "little") for number in numbers]


Halves = tuple[np.ndarray, np.ndarray]


def _halves(matrix: np.ndarray) -> Halves:
    """Upper and lower 16 bits as float64."""
    return (matrix >> np.uint64(16)).astype(np.float64), (matrix & np.uint64(0xFFFF)).astype(
        np.float64
    )


def _product(a: Halves, b: Halves) -> np.ndarray:
    """Matrix product in the field, uint64, of matrices cut in halves."""
    high = _residues(a[0] @ b[0])
    low = _residues(a[1] @ b[1])
    middle = (_residues(a[0] @ b[1]) + _residues(a[1] @ b[0])) % PRIME
    product: np.ndarray = (
        (((high << np.uint64(16)) + middle) % PRIME << np.uint64(16)) + low
    ) % PRIME
    return product


def _residues(whole: np.ndarray) -> np.ndarray:
    residues: np.ndarray = whole.astype(np.uint64) % PRIME
    return residues


@lru_cache(maxsize=4)
def powers(parties: int, terms: int) -> Halves:
    """Powers 0..terms-1 of the points 1..parties, (parties, terms)."""
    points = np.arange(1, parties + 1, dtype=np.uint64)
    rows = np.ones((terms, parties), dtype=np.uint64)
    for k in range(1, terms):
        rows[k] = rows[k - 1] * points % PRIME
    high, low = _halves(rows.T)
    return np.ascontiguousarray(high), np.ascontiguousarray(low)


def _multiply_rows(matrix: np.ndarray) -> np.ndarray:
    """Product of each row's elements in the field."""
    while matrix.shape[1] > 1:
        if matrix.shape[1] % 2:
            matrix = np.hstack([matrix, np.ones((len(matrix), 1), dtype=np.uint64)])
        matrix = matrix[:, ::2] * matrix[:, 1::2] % PRIME
    return matrix[:, 0]


def _inverse(elements: np.ndarray) -> np.ndarray:
    """Elementwise inverse, by Fermat: x^(p - 2)."""
    result = np.ones_like(elements)
    exponent = PRIME - 2
    while exponent:
        if exponent & 1:
            result = result * elements % PRIME
        elements = elements * elements % PRIME
        exponent = exponent >> 1
    return result
