"""What a silo lets into a sum, number by number: bounded, counted, each unit once, with the
declared share of noise."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from fedpriv.encoding.fixed_point import FixedPoint
from fedpriv.mechanisms.discrete_gaussian import DiscreteGaussian
from fedpriv.mechanisms.gaussian import Gaussian
from fedpriv.rounds.bounding import bounded
from fedpriv.rounds.contributors import RecordVectors, Silos, Users
from fedpriv.rounds.local_job import LocalJob
from fedpriv.rounds.query import Asked, Query
from fedpriv.rounds.silo_context import Silo
from fedpriv.runtime.silo import SiloWork
from fedpriv.training.contributions import Contributions, ContributionStats
from fedpriv.training.description import Recipe, Training
from fedpriv.util.streams import Streams


def query(mechanism=None, **details):
    numbers = {
        "n_summed": 4,
        "size": 2,
        "encoding": None,
        "events": (),
        "streams": Streams(0),
    } | details
    return Query("update", 1, (0, 1, 2, 3), mechanism=mechanism or Gaussian(1.0, 5.0), **numbers)


def block(units, *rows):
    return Contributions(np.array(units), torch.tensor(rows))


def test_contributions_are_clipped_counted_and_dropped_one_by_one():
    stats = ContributionStats()
    rows = [3.0, 4.0], [float("nan"), 0.0], [0.0, 1.0]
    first, second = bounded(
        iter([block([3, 1, 2], *rows), block([7], [0.25, 0.0])]), query(), stats
    )
    np.testing.assert_array_equal(first.units, [3, 2])
    np.testing.assert_allclose(first.vectors, [[0.6, 0.8], [0.0, 1.0]])
    np.testing.assert_array_equal(second.vectors, [[0.25, 0.0]])
    assert (stats.units, stats.nonfinite, stats.norm_sum, stats.clipped) == (4, 1, 6.25, 1)


def test_users_outside_of_the_sample_are_left_out():
    """A method that forgets the sample would be charged as if it had kept to it."""
    sampled = np.array([True, False, True, False])
    blocks = block([0, 1, 2], [0.1, 0.0], [0.2, 0.0], [0.3, 0.0]), block([3], [0.4, 0.0])
    stats = ContributionStats()
    [kept] = bounded(iter(blocks), query(sampled=sampled, user_rate=0.5), stats)
    np.testing.assert_array_equal(kept.units, [0, 2])
    assert stats.units == 2


@pytest.mark.parametrize("contributors", [Users(), RecordVectors()])
def test_records_that_train_together_are_one_silos_contribution(contributors):
    training = Training(Recipe(1, None, 0.1), np.zeros(2), pooled=True)
    silo = Silo(0, None, None, None, None, contributors=contributors)
    with pytest.raises(ValueError, match="declare Silos"):
        silo.train(query(), training)
    replace(silo, contributors=Silos()).train(query(), training)
    silo.train(query(asked=Asked(enforced=False)), training)


def test_a_method_that_bounds_by_itself_is_left_alone():
    stats, raw = ContributionStats(), block([3, 3], [30.0, 40.0], [0.0, 1.0])
    (seen,) = bounded(iter([raw]), query(asked=Asked(enforced=False)), stats)
    assert seen is raw
    assert stats == ContributionStats()


@pytest.mark.parametrize("blocks", [[[1, 1]], [[1], [1]], [[1, 2], [3, 2]]])
def test_a_unit_that_comes_twice_is_refused(blocks):
    made = [block(units, *[[0.1, 0.0]] * len(units)) for units in blocks]
    with pytest.raises(ValueError, match="contributes twice"):
        list(bounded(iter(made), query(), ContributionStats()))


@pytest.mark.parametrize("enforced", [True, False])
@pytest.mark.parametrize(
    ("units", "rows"),
    [([1], [[0.5]]), ([1], [[0.1] * 3]), ([1, 2], [[0.1, 0.1]]), ([1], [0.1, 0.1])],
)
def test_vectors_of_another_length_are_refused(units, rows, enforced):
    """A vector of one number would be spread over all coordinates, after it was bounded."""
    with pytest.raises(ValueError, match="one vector of 2 coordinates"):
        list(
            bounded(
                iter([block(units, *rows)]),
                query(asked=Asked(enforced=enforced)),
                ContributionStats(),
            )
        )


def test_a_unit_below_zero_is_refused():
    """It would have the weight of another unit, and count beside it."""
    with pytest.raises(ValueError, match="unit -1 does not exist"):
        list(bounded(iter([block([-1], [0.1, 0.0])]), query(), ContributionStats()))


def test_the_share_is_sized_for_the_sum_the_sensitivity_and_the_grid():
    """Drawn anew from the same stream: any other number in its place gives other noise."""
    silo = SimpleNamespace(streams=Streams(0), name="silo0")
    mechanism, grid = DiscreteGaussian(1.0, 5.0), FixedPoint(64, 100.0, 4)
    asked = query(mechanism, sensitivity=2.0, encoding=grid)
    rng = Streams(0).secret("noise", 1, "silo0")
    expected = mechanism.noise_share(2, 4, rng, sensitivity=2.0, encoding=grid)
    seen = SiloWork(SimpleNamespace(silo=silo), asked).noise(LocalJob(iter(())), asked)[0]
    assert expected.any()
    np.testing.assert_array_equal(seen, expected)


def test_noise_is_the_methods_own_only_where_it_says_so():
    silo = SimpleNamespace(streams=Streams(0), name="silo0")
    own = LocalJob(iter(()), np.full(2, 7.0))
    for asked, local, expected in (
        (query(asked=Asked(enforced=False)), own, own.noise),
        (query(asked=Asked(enforced=False)), LocalJob(iter(())), np.zeros(2)),
    ):
        np.testing.assert_array_equal(
            SiloWork(SimpleNamespace(silo=silo), asked).noise(local, asked)[0], expected
        )
    seen = SiloWork(SimpleNamespace(silo=silo), query()).noise(own, query())[0]
    assert not np.array_equal(seen, own.noise)
