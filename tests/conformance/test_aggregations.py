"""What every aggregation must do. Add a new one to AGGREGATIONS."""

import pickle

import numpy as np
import pytest
import torch
from plans import plan_for

from fedpriv.aggregation.base import SERVER, AggregationAborted
from fedpriv.aggregation.fixed_point import FixedPoint
from fedpriv.aggregation.masked import Masked
from fedpriv.aggregation.plain import Plain
from fedpriv.aggregation.private_weighting import PrivateWeighting
from fedpriv.aggregation.ring import UNBOUNDED_RANGE
from fedpriv.aggregation.secagg import SecAgg
from fedpriv.algorithms.base import Contributions, Update
from fedpriv.algorithms.uldp import records, uniform
from fedpriv.engines.inprocess import InProcess

SILOS, USERS, SIZE = 3, 6, 5
AGGREGATIONS = {
    Plain(): 0.0,
    Masked(): FixedPoint(64, UNBOUNDED_RANGE, SILOS).rounding,
    Masked(bits=32, range=100.0): FixedPoint(32, 100.0, SILOS).rounding,
    SecAgg(): FixedPoint(64, UNBOUNDED_RANGE, SILOS).rounding,
    SecAgg(threshold=2, bits=32, range=100.0): FixedPoint(32, 100.0, SILOS).rounding,
}
PRIVATE = PrivateWeighting(key_bits=512, n_max=20, precision=20)
AGGREGATIONS |= {PRIVATE: (USERS + SILOS) * 2.0**-20}
"""Each with the most that a coordinate of its sum may be off."""
RECORDS_ONLY = {PRIVATE}
"""Those that serve no other weights."""


@pytest.fixture(params=AGGREGATIONS, ids=str)
def aggregation(request):
    return request.param


@pytest.fixture(params=[aggregation for aggregation in AGGREGATIONS if aggregation not in RECORDS_ONLY], ids=str)
def weighing(request):
    """An aggregation whose server hands out any weights."""
    return request.param


def federation(seed=0):
    """Counts, vectors by silo and user, noise by silo."""
    rng = np.random.default_rng(seed)
    counts = rng.integers(0, 5, (SILOS, USERS))
    return counts, rng.normal(size=(SILOS, USERS, SIZE)), rng.normal(size=(SILOS, SIZE))


def memories():
    return {name: {} for name in [SERVER, *(f"silo{s}" for s in range(SILOS))]}


def updates(counts, vectors, noise, block=2):
    def blocks(s):
        users = np.flatnonzero(counts[s])
        for start in range(0, len(users), block):
            units = users[start : start + block]
            yield Contributions(units, torch.from_numpy(vectors[s, units]))

    return {f"silo{s}": Update(blocks(s), noise[s]) for s in range(SILOS)}


def run(aggregation, counts, vectors, noise, weigh, needs_counts, drop=()):
    memory, engine = memories(), InProcess()
    shown = {f"silo{s}": counts[s] for s in range(SILOS)}
    engine.run(aggregation.setup(shown, weigh, needs_counts, memory))
    plan = plan_for(aggregation, SILOS, users=USERS)
    parties = aggregation.exchange(plan, updates(counts, vectors, noise), memory)
    for name in drop:
        parties[name] = silent()
    return engine.run(parties)[SERVER]


def silent():
    yield {}


@pytest.mark.parametrize(
    ("aggregation", "weigh", "needs_counts"),
    [(aggregation, records, True) for aggregation in AGGREGATIONS]
    + [(aggregation, uniform, False) for aggregation in AGGREGATIONS if aggregation not in RECORDS_ONLY],
    ids=lambda value: getattr(value, "__name__", str(value)),
)
def test_equals_the_plain_weighted_sum(aggregation, weigh, needs_counts):
    counts, vectors, noise = federation()
    present = (counts > 0) * weigh(counts)
    expected = np.einsum("su,sud->d", present, vectors) + noise.sum(0)
    total = run(aggregation, counts, vectors, noise, weigh, needs_counts)
    np.testing.assert_allclose(total.vector, expected, rtol=1e-12, atol=AGGREGATIONS[aggregation])
    assert set(total.parties) == {f"silo{s}" for s in range(SILOS)}


def test_a_missing_silo_ends_the_round_without_a_sum(aggregation):
    counts, vectors, noise = federation()
    with pytest.raises(AggregationAborted, match="silo1"):
        run(aggregation, counts, vectors, noise, records, True, drop=["silo1"])


def test_weights_above_one_are_refused(weighing):
    counts, vectors, noise = federation()
    with pytest.raises(ValueError, match="add up to"):
        run(weighing, counts, vectors, noise, lambda table: 2 * uniform(table), False)


def test_pickles(aggregation):
    assert pickle.loads(pickle.dumps(aggregation)) == aggregation


def test_counts_stay_home_when_no_weight_needs_them(weighing):
    seen = []

    def spy(table):
        seen.append(table.copy())
        return uniform(table)

    counts, vectors, noise = federation()
    run(weighing, counts, vectors, noise, spy, False)
    assert not np.any(seen)
