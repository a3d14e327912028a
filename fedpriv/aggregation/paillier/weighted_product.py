"""Products of powers, prod_u E_u^(A[u, k]) modulo n^2, for all parameters k: the weighted sum under encryption."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from gmpy2 import mpz, powmod

from fedpriv.aggregation.fixed_point import OutOfRange
from fedpriv.aggregation.paillier.keys import PublicKey
from fedpriv.aggregation.paillier.layout import Layout


def hoist(public: PublicKey, ciphertexts: Sequence[mpz], factors: Sequence[int], workers: int = 1) -> list[mpz]:
    """Every user's ciphertext raised to its factor modulo n, once a round. The factor is r_u n_su C_LCM, so that a
    parameter's exponent is only the short fixed-point coordinate. The result does not depend on `workers`."""
    return [powmod(c, f % public.n, public.square) for c, f in zip(ciphertexts, factors, strict=True)]


def weighted_product(
    public: PublicKey, hoisted: Sequence[mpz], coefficients: np.ndarray, layout: Layout, workers: int = 1
) -> list[mpz]:
    """Packed ciphertexts, `layout.columns(d)` of them, whose slot for parameter k holds sum_u m_u a_uk.

    hoisted: one ciphertext of m_u for each of this silo's users, by `hoist`. coefficients: (users, d) int64, truncated
    coordinates. The products are deterministic and must be re-randomised, by `seal`, before they leave the silo. Raises
    OutOfRange for a coefficient beyond `layout.coordinate_bound`. The result does not depend on `workers`.
    """
    check_coefficients(coefficients, len(hoisted), layout)
    results = []
    for start in range(0, coefficients.shape[1], layout.slots):
        product = mpz(1)
        for base, row in zip(hoisted, coefficients[:, start : start + layout.slots].tolist(), strict=True):
            exponent = sum(value << (layout.width * slot) for slot, value in enumerate(row))
            product = product * powmod(base, exponent, public.square) % public.square
        results.append(product)
    return results


def check_coefficients(coefficients: np.ndarray, users: int, layout: Layout) -> None:
    """Raise unless the matrix is int64 (users, d) within the layout's bound."""
    if coefficients.ndim != 2 or len(coefficients) != users or coefficients.dtype != np.int64:
        raise ValueError(f"coefficients {coefficients.dtype} {coefficients.shape} for {users} users")
    limit = layout.coordinate_bound
    if (coefficients > limit).any() or (coefficients < -limit).any():
        raise OutOfRange(f"a coordinate lies outside {limit} units of 2^-{layout.precision}; clip before encoding")


def seal(public: PublicKey, products: Sequence[mpz], plaintexts: Sequence[int], residues: Sequence[mpz]) -> list[mpz]:
    """What a silo sends: each product with a plaintext (noise and mask, modulo n) added and a fresh n-th residue
    multiplied in. Without that residue the product tells the coefficients to whoever made the ciphertexts."""
    square = public.square
    return [
        public.add(product, plaintext) * residue % square
        for product, plaintext, residue in zip(products, plaintexts, residues, strict=True)
    ]


def multiply(public: PublicKey, messages: Sequence[Sequence[mpz]]) -> list[mpz]:
    """The server's sum: ciphertexts of all silos multiplied column by column."""
    totals = list(messages[0])
    for message in messages[1:]:
        totals = [total * c % public.square for total, c in zip(totals, message, strict=True)]
    return totals
