"""Products of powers, prod_u E_u^(A[u, k]) modulo n^2, for all parameters k: the weighted sum under
encryption.

Step 2(b) of Protocol 1 of Kato, Xiong, Takagi, Cao and Yoshikawa (Uldp-FL, PVLDB 17(11), 2024),
where a silo raises every user's ciphertext Enc(B_inv(N_u)) to Encode(delta) * r_u n_su C_LCM for
each parameter. Here that power is cut in two: `raise_to_factors` takes the part without delta, once
a user, and `weighted_product` the short remainder for all parameters at once. The plaintexts are
the same.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from gmpy2 import f_divmod, invert, mpz

from fedpriv.aggregation.private_weighting import packed_tables
from fedpriv.aggregation.private_weighting.packed_tables import TablePlan, even_ranges
from fedpriv.crypto.paillier import pairs
from fedpriv.crypto.paillier.keys import EncryptionKey
from fedpriv.encoding.slot_layout import SlotLayout


def raise_to_factors(
    public: EncryptionKey,
    ciphertexts: Sequence[mpz],
    factors: Sequence[int],
) -> list[mpz]:
    """Every user's ciphertext raised to its factor modulo n, once a round. The factor is r_u n_su
    C_LCM. A parameter's exponent is then only the short fixed-point coordinate."""
    n = public.modulus
    return [
        pairs.join(pairs.power(pairs.split(c, n), factor % public.n, n), n)
        for c, factor in zip(ciphertexts, factors, strict=True)
    ]


def weighted_product(
    public: EncryptionKey,
    powers: Sequence[mpz],
    coefficients: np.ndarray,
    *,
    layout: SlotLayout,
) -> list[mpz]:
    """Packed ciphertexts, `layout.columns(d)` of them, whose slot for parameter k holds sum_u m_u
    a_uk.

    powers: one ciphertext of m_u for each of this silo's users, at least one, by
        `raise_to_factors`.
    coefficients: (users, d) int64, coordinates by `layout.truncate`; d is at least 1.

    The products are deterministic: they must go through `add_and_rerandomise` before they leave the
    silo. The number of operations does not depend on the coefficients.
    """
    users, dimension = coefficients.shape
    n = public.modulus
    slots = packed_tables.used_slots(layout, dimension)
    plan = packed_tables.best_plan(layout, users, dimension)
    bases = [pairs.split(c, n) for c in powers]
    joint = _joint_tables(bases, plan, width=layout.width, n=n)
    undo = pairs.split(_lifted_zero(public, powers, layout=layout, slots=slots), n)
    results = []
    for start in range(0, dimension, slots):
        block = coefficients[:, start : start + slots]
        block = np.pad(block, ((0, 0), (0, slots - block.shape[1])))
        indices = _indices(block + layout.coordinate_bound, plan, layout)
        product = _column(joint, indices, plan, layout=layout, n=n)
        results.append(pairs.join(pairs.times(product, undo, n), n))
    return results


def add_and_rerandomise(
    public: EncryptionKey,
    products: Sequence[mpz],
    *,
    plaintexts: Sequence[int],
    residues: Sequence[mpz],
) -> list[mpz]:
    """A silo's message: add a plaintext (noise and mask, modulo n) to each product and multiply by
    a fresh n-th residue. Without the residue the product reveals the coefficients to the party that
    made the ciphertexts."""
    square = public.square
    return [
        public.add(product, plaintext) * residue % square
        for product, plaintext, residue in zip(products, plaintexts, residues, strict=True)
    ]


def multiply(public: EncryptionKey, messages: Sequence[Sequence[mpz]]) -> list[mpz]:
    """The server's sum: ciphertexts of all silos multiplied column by column."""
    totals = list(messages[0])
    for message in messages[1:]:
        totals = [total * c % public.square for total, c in zip(totals, message, strict=True)]
    return totals


def _lifted_zero(
    public: EncryptionKey, powers: Sequence[mpz], *, layout: SlotLayout, slots: int
) -> mpz:
    """Removes the offset from every coordinate of a column: prod_u E_u^(-offset) in every slot."""
    product = mpz(1)
    for c in powers:
        product = product * c % public.square
    exponent = sum(layout.coordinate_bound << (layout.width * slot) for slot in range(slots))
    inverse = pairs.split(invert(product, public.square), public.modulus)
    return pairs.join(pairs.power(inverse, exponent, public.modulus), public.modulus)


def _joint_tables(
    bases: list[pairs.Pair], plan: TablePlan, *, width: int, n: mpz
) -> list[list[list[pairs.Pair]]]:
    """Subset products, for each copy and each group of users."""
    copies = []
    for copy in range(plan.copies):
        if copy:
            bases = [pairs.doublings(base, width * plan.chain, n) for base in bases]
        groups = even_ranges(len(bases), plan.groups)
        copies.append(
            [pairs.subset_products(bases[group.start : group.stop], n) for group in groups]
        )
    return copies


def _indices(lifted: np.ndarray, plan: TablePlan, layout: SlotLayout) -> list[list[list[int]]]:
    """Index in every group's table, for each slot and each bit from the highest to the lowest.

    lifted: (users, slots) int64, zero or more.
    """
    users, slots = lifted.shape
    indices = np.zeros((slots, layout.coordinate_bits, plan.groups), dtype=np.int64)
    bits = np.arange(layout.coordinate_bits)[::-1]
    for column, group in enumerate(even_ranges(users, plan.groups)):
        for place, user in enumerate(group):
            indices[:, :, column] |= (lifted[user, :, None] >> bits & 1) << place
    looked_up: list[list[list[int]]] = indices.tolist()
    return looked_up


def _column(
    joint: list[list[list[pairs.Pair]]],
    indices: list[list[list[int]]],
    plan: TablePlan,
    *,
    layout: SlotLayout,
    n: mpz,
) -> pairs.Pair:
    """One packed product of lifted coordinates, from the highest bit to the lowest."""
    slots = len(indices)
    low = mpz(1)
    high = mpz(0)
    for link in reversed(range(plan.chain)):
        if link < plan.chain - 1:
            low, high = pairs.doublings((low, high), layout.width - layout.coordinate_bits, n)
        in_use = [
            (joint[copy], indices[slot]) for copy, slot in enumerate(range(link, slots, plan.chain))
        ]
        for bit in range(layout.coordinate_bits):
            low, high = pairs.doublings((low, high), 1, n)
            for groups, rows in in_use:
                for table, index in zip(groups, rows[bit]):
                    # pairs.times, written out: this line is nearly all of a silo's work.
                    a, b = table[index]
                    quotient, remainder = f_divmod(low * a, n)
                    high = (quotient + low * b + high * a) % n
                    low = remainder
    return low, high
