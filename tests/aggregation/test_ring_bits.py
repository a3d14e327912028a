"""Which ring messages live in when nobody says."""

import numpy as np
import pytest
from plans import make_plan, only_query
from queries import query_for

from fedpriv.aggregation.masked import Masked
from fedpriv.aggregation.ring import clear_message, ring_encoding
from fedpriv.aggregation.secagg.aggregation import SecAgg
from fedpriv.algorithms.uldp import UldpAvg
from fedpriv.encoding.fixed_point import OutOfRangeError
from fedpriv.errors import ConfigError
from fedpriv.mechanisms.gaussian import Gaussian
from fedpriv.mechanisms.none import NoMechanism
from fedpriv.parties.schema import SchemaError
from fedpriv.rounds.plan import Federation

ALGO = UldpAvg(
    local_epochs=1,
    batch_size=8,
    local_lr=0.1,
    global_lr=1.0,
    clip=1.0,
    noise_multiplier=5.0,
    user_rate=1.0,
    weighting="uniform",
)


def plan(aggregation, *, silos=5, size=100, mechanism=None, algo=ALGO):
    return make_plan(
        algo, mechanism or Gaussian(1.0, 5.0), aggregation, federation=Federation(100, silos, size)
    )


@pytest.mark.parametrize("kind", [Masked, SecAgg])
def test_auto_takes_32_bits_where_rounding_costs_next_to_nothing(kind):
    narrow, wide = plan(kind(bits="auto")), plan(kind())
    assert (narrow.encoding.bits, wide.encoding.bits) == (32, 64)
    assert plan(kind(bits="auto"), silos=1000, size=1000).encoding.bits == 64
    assert plan(kind(bits="auto"), mechanism=Gaussian(1.0, 0.0)).encoding.bits == 64
    assert plan(kind(bits="auto"), mechanism=NoMechanism()).encoding.bits == 64
    # The noise's multiple of the sensitivity, with what rounding adds to it, changes in its fourth
    # digit.
    events = [
        only_query(ALGO, made).events[0].certified.noise_multiplier for made in (narrow, wide)
    ]
    assert events[0] != events[1]
    assert events[0] == pytest.approx(events[1], rel=1e-3)


@pytest.mark.parametrize("bits", ["auto", 32, 64])
def test_no_sum_can_overflow(bits):
    encoding = plan(SecAgg(bits=bits)).encoding
    largest = encoding.encode(np.array([encoding.bound, -encoding.bound]), "silo0")
    total = np.zeros_like(largest)
    for _ in range(encoding.parties):
        total += largest
    np.testing.assert_allclose(
        encoding.decode(total), 5 * encoding.bound * np.array([1, -1]), rtol=1e-6
    )
    with pytest.raises(OutOfRangeError):
        encoding.encode(np.array([1.01 * encoding.bound]), "silo0")


def test_a_range_below_what_messages_can_reach_is_refused():
    """Whether a run fails would depend on its data."""

    def encoding(reach, bound):
        return Masked(range=reach).encoding(5, bound, Federation(100, 5, 100), Gaussian(1.0, 5.0))

    with pytest.raises(ConfigError, match=r"aggregation.range=2.9.*at least 3.0"):
        encoding(2.9, 3.0)
    assert encoding(3.0, 3.0).bound == encoding(None, 3.0).bound == 3.0
    assert encoding(2.9, np.inf).bound == 2.9


def test_a_message_in_the_clear_is_integers_that_one_silo_can_reach():
    query = query_for(Masked(range=4.0), 2, size=3)
    kind, zeros = clear_message(query), np.zeros(3, dtype=ring_encoding(query).dtype)
    kind.check(zeros)
    for wrong in (zeros[:2], zeros.astype(np.float64), "zeros"):
        with pytest.raises(SchemaError):
            kind.check(wrong)
    with pytest.raises(SchemaError, match="a coordinate beyond 4"):
        kind.check(zeros + zeros.dtype.type(2**62))
