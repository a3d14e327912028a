"""Which ring messages live in when nobody says."""

import numpy as np
import pytest
from deployments import deployed, only_query

from fedpriv.aggregation.masked import Masked
from fedpriv.aggregation.secagg.aggregation import SecAgg
from fedpriv.algorithms.uldp import UldpAvg
from fedpriv.deployment import Federation
from fedpriv.encoding.fixed_point import OutOfRangeError
from fedpriv.errors import ConfigError
from fedpriv.mechanisms.gaussian import Gaussian
from fedpriv.mechanisms.none import NoMechanism

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


def deployment(aggregation, *, silos=5, size=100, mechanism=None, algo=ALGO):
    return deployed(algo, mechanism or Gaussian(1.0, 5.0), aggregation, federation=Federation(100, silos, size))


@pytest.mark.parametrize("kind", [Masked, SecAgg])
def test_auto_takes_32_bits_where_rounding_costs_next_to_nothing(kind):
    narrow, wide = deployment(kind(bits="auto")), deployment(kind())
    assert (narrow.encoding.bits, wide.encoding.bits) == (32, 64)
    assert deployment(kind(bits="auto"), silos=1000, size=1000).encoding.bits == 64
    assert deployment(kind(bits="auto"), mechanism=Gaussian(1.0, 0.0)).encoding.bits == 64
    assert deployment(kind(bits="auto"), mechanism=NoMechanism()).encoding.bits == 64
    # The noise's multiple of the sensitivity, with what rounding adds to it, changes in its fourth digit.
    events = [only_query(ALGO, made).events[0].certified.noise_multiplier for made in (narrow, wide)]
    assert events[0] != events[1]
    assert events[0] == pytest.approx(events[1], rel=1e-3)


def test_auto_is_what_32_bits_are_when_said():
    assert deployment(SecAgg(bits="auto")).channels == deployment(SecAgg(bits=32)).channels


@pytest.mark.parametrize("bits", ["auto", 32, 64])
def test_no_sum_can_overflow(bits):
    encoding = deployment(SecAgg(bits=bits)).encoding
    largest = encoding.encode(np.array([encoding.bound, -encoding.bound]), "silo0")
    total = np.zeros_like(largest)
    for _ in range(encoding.parties):
        total += largest
    np.testing.assert_allclose(encoding.decode(total), 5 * encoding.bound * np.array([1, -1]), rtol=1e-6)
    with pytest.raises(OutOfRangeError):
        encoding.encode(np.array([1.01 * encoding.bound]), "silo0")


@pytest.mark.parametrize("bits", [8, "32", "some", None])
def test_other_rings_are_refused(bits):
    with pytest.raises(ConfigError, match=r"^aggregation\.bits="):
        SecAgg(bits=bits)
