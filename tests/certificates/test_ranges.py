"""Ranges and grids of an author's sums: whether a message fits must not depend on data."""

from dataclasses import dataclass, field

import numpy as np
import pytest
from plans import make_plan, only_query

from fedpriv.accountants.events import ADD_REMOVE
from fedpriv.aggregation.masked import Masked
from fedpriv.aggregation.plain import Plain
from fedpriv.algorithms.base import Algorithm
from fedpriv.certificates.noise import SumNoise
from fedpriv.certificates.request import Request, Target
from fedpriv.certificates.sampling import Batches, Poisson, WithoutReplacement
from fedpriv.errors import ConfigError
from fedpriv.mechanisms.gaussian import Gaussian
from fedpriv.rounds.contributors import Contributors, RecordVectors, Silos, Users
from fedpriv.rounds.plan import Federation
from fedpriv.util.streams import Streams

RECORDS = 3
FEDERATION = Federation(300, 100, 1, (1, *(RECORDS,) * 99))


@dataclass(frozen=True)
class Summed(Algorithm):
    """It says nothing of how large messages are."""

    units: Contributors
    per_sum: float = 1.0

    label = "summed"

    @property
    def contributors(self):
        return self.units

    def targets(self, federation):
        return (Target("user" if isinstance(self.units, Users) else "record", ADD_REMOVE),)

    def requests(self, round, plan):
        return (Request(SumNoise(lambda n_summed: self.per_sum)),)

    def global_update(self, state, query, total, plan):
        return state


def asked(algo, clip, aggregation, noise=1.0):
    streams = Streams(0, system=True)
    mechanism = Gaussian(clip, noise)
    made = make_plan(algo, mechanism, aggregation, federation=FEDERATION, streams=streams)
    return only_query(algo, made)


@pytest.mark.parametrize("units", [RecordVectors(), Silos()])
@pytest.mark.parametrize(
    ("clip", "aggregation"), [(1.0, Masked(range=0.5)), (2e4, Masked()), (2e4, Plain())]
)
def test_a_range_that_a_bounded_vector_leaves_is_refused(units, clip, aggregation):
    """Whether the query ends would say of one record what a tenth of the noise does not hide."""
    with pytest.raises(ConfigError, match=r"aggregation\.range.*which messages can reach"):
        asked(Summed(units), clip, aggregation)


@pytest.mark.parametrize(("units", "vectors"), [(RecordVectors(), RECORDS), (Silos(), 1)])
def test_a_vector_and_its_noise_fit_every_range_that_is_allowed(units, vectors):
    noise = Gaussian(1.0, 1.0).noise_bound(100)
    query = asked(Summed(units), 1.0, Masked(range=vectors + noise))
    share = np.array([noise / 2])
    assert query.encoding.encode(np.array([float(vectors)]), "silo0", share)
    with pytest.raises(ConfigError, match="which messages can reach"):
        asked(Summed(units), 1.0, Masked(range=vectors + noise / 3))


def test_noise_for_a_larger_sensitivity_needs_a_larger_range():
    assert asked(Summed(Users(), per_sum=2.0), 1.0, Masked(), noise=0.1)
    with pytest.raises(ConfigError, match="which messages can reach"):
        asked(Summed(Users(), per_sum=500.0), 1.0, Masked(), noise=0.1)


def test_a_grid_too_coarse_for_a_share_is_refused_whoever_wrote_the_method():
    with pytest.raises(ConfigError, match=r"1\.6 grid steps, at least 8 are needed"):
        asked(Summed(Users()), 1.0, Masked(bits=32, range=1e6))


@dataclass(frozen=True)
class Drawn(Summed):
    """It draws a batch of two records in each silo that has so many."""

    batches: Batches = field(default_factory=WithoutReplacement)

    def targets(self, federation):
        return (Target("record", self.batches.adjacency),)

    def requests(self, round, plan):
        def size(records):
            return min(2, records)

        return (Request(SumNoise(), batches=self.batches, batch_size=size),)


def test_a_range_need_not_hold_more_records_than_a_batch():
    two = Masked(range=2 + Gaussian(1.0, 1.0).noise_bound(100) / 2)
    assert asked(Drawn(RecordVectors()), 1.0, two)
    with pytest.raises(ConfigError, match="which messages can reach"):
        asked(Drawn(RecordVectors(), batches=Poisson()), 1.0, two)  # all three may be drawn
