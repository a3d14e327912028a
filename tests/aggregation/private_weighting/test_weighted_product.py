import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from phe import PaillierPrivateKey, PaillierPublicKey

from fedpriv.aggregation.private_weighting import packed_tables
from fedpriv.aggregation.private_weighting.weighted_product import (
    raise_to_factors,
    weighted_product,
)
from fedpriv.crypto.paillier.keys import generate_key
from fedpriv.encoding.slot_layout import SlotLayout

KEY = generate_key(512)
PUBLIC = KEY.public
PHE = PaillierPrivateKey(PaillierPublicKey(PUBLIC.n), KEY.p, KEY.q)


def layout(users, bound=1.0, precision=20):
    return SlotLayout(
        512, n_max=20, precision=precision, users=users, silos=2, bound=bound, noise=5.0
    )


def plain_totals(weights, coefficients):
    """Oracle in Python integers."""
    return [sum(w * a for w, a in zip(weights, column)) for column in coefficients.T.tolist()]


@st.composite
def cases(draw):
    users = draw(st.integers(1, 6))
    shape = layout(users)
    dimension = draw(
        st.sampled_from([1, 2, shape.slots - 1, shape.slots, shape.slots + 1, 2 * shape.slots + 3])
    )
    limit = shape.coordinate_bound
    values = st.one_of(st.sampled_from([0, 1, -1, limit, -limit]), st.integers(-limit, limit))
    rows = draw(
        st.lists(
            st.lists(values, min_size=dimension, max_size=dimension), min_size=users, max_size=users
        )
    )
    weights = draw(st.lists(st.integers(1, shape.lcm), min_size=users, max_size=users))
    return shape, weights, np.array(rows, dtype=np.int64)


@settings(max_examples=20, deadline=None)
@given(cases())
def test_slots_hold_the_plain_weighted_sums(case):
    shape, weights, coefficients = case
    products = weighted_product(
        PUBLIC, [KEY.encrypt(w) for w in weights], coefficients, layout=shape
    )
    dimension = coefficients.shape[1]
    totals = plain_totals(weights, coefficients)
    for decrypt in (KEY.decrypt, lambda c: PHE.raw_decrypt(int(c))):
        assert shape.unpack([decrypt(c) for c in products], PUBLIC.n, dimension) == totals


@pytest.mark.parametrize("groups", [1, 2, 3, 5])
@pytest.mark.parametrize("extra", [-1, 0, 4])
def test_every_layout_of_the_tables_gives_the_same_ciphertexts(monkeypatch, groups, extra):
    shape = layout(5)
    dimension = 2 * shape.slots + extra
    limit = shape.coordinate_bound
    coefficients = np.random.default_rng(1).integers(-limit, limit + 1, (5, dimension))
    bases = [KEY.encrypt(u + 1) for u in range(5)]
    expected = [
        pow_product(bases, coefficients[:, k : k + shape.slots], shape)
        for k in range(0, dimension, shape.slots)
    ]
    for chain in range(1, shape.slots + 1):
        plan = packed_tables.make_plan(shape, 5, dimension, groups=groups, chain=chain)
        assert plan.copies * chain >= shape.slots
        monkeypatch.setattr(packed_tables, "best_plan", lambda *_, plan=plan, **__: plan)
        assert weighted_product(PUBLIC, bases, coefficients, layout=shape) == expected


def pow_product(bases, coefficients, shape):
    """Oracle: one long power for each user."""
    product = 1
    for base, row in zip(bases, coefficients.tolist()):
        exponent = sum(a << (shape.width * slot) for slot, a in enumerate(row))
        product = product * pow(int(base), exponent, PUBLIC.n**2) % PUBLIC.n**2
    return product


def test_ciphertexts_are_raised_to_their_factors():
    bases, factors = [KEY.encrypt(u + 1) for u in range(4)], [3, PUBLIC.n + 5, 7, PUBLIC.n - 1]
    powers = raise_to_factors(PUBLIC, bases, factors)
    assert [KEY.decrypt(c) for c in powers] == [3, 10, 21, PUBLIC.n - 4]


def test_the_best_plan_is_the_cheapest_that_fits_memory():
    shape = SlotLayout(3072, 100, 24, users=100, silos=3, bound=1.0, noise=80.0)
    plans = [
        packed_tables.make_plan(shape, 100, 4000, groups=groups, chain=chain)
        for groups in (5, 7, 9, 20)
        for chain in range(1, 19)
    ]
    best = packed_tables.best_plan(shape, 100, 4000)
    assert best.work <= min(plan.work for plan in plans)
    tight = packed_tables.best_plan(shape, 100, 4000, memory=2**23)
    assert tight.table_entries * packed_tables.entry_bytes(3072) <= 2**23
    assert tight.work > best.work
    assert (
        packed_tables.best_plan(shape, 100, 4000, memory=0).table_entries == 200
    )  # none, and each of 100 alone
