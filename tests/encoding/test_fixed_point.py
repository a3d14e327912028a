from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from fedpriv.encoding.fixed_point import FixedPoint, ImpossibleSumError, OutOfRangeError, precision
from fedpriv.errors import ConfigError

RINGS = st.sampled_from([32, 64])
SPANS = st.floats(1e-6, 1e5)


@given(RINGS, SPANS, st.integers(1, 10_000))
def test_precision_is_the_largest_that_cannot_wrap(bits, span, parties):
    try:
        f = precision(bits, span, parties)
    except ConfigError:
        f = -1

    def fits(f):
        return parties * (Fraction(span) * Fraction(2) ** f + 1) < min(2 ** (bits - 1), 2**53)

    assert f == -1 or fits(f)
    assert f == bits or not fits(f + 1)


@pytest.mark.parametrize(("bits", "half"), [(32, 2**31), (64, 2**53)])
def test_precision_leaves_room_for_a_rounding_of_each_party_and_no_more(bits, half):
    """parties * (bound * 2^f + 1) < half, at the edge: an integer more could wrap, or be no
    float64."""
    assert precision(bits, half - 2, 1) == 0
    assert precision(bits, (half // 4 - 2) / 2, 4) == 1
    assert precision(bits, 1.0, 1) == half.bit_length() - 2
    for bound, parties in ((half - 1, 1), (half // 4 - 1, 4)):
        with pytest.raises(
            ConfigError, match=f"too large for {parties} parties and aggregation.bits={bits}"
        ):
            precision(bits, bound, parties)


@given(RINGS, SPANS, st.integers(1, 40), st.data())
def test_sum_is_within_the_stated_rounding(bits, span, parties, data):
    encoding = FixedPoint(bits, span, parties)
    halves = arrays(np.float64, (2, parties, 3), elements=st.floats(-span / 2, span / 2))
    signals, noises = data.draw(halves)
    total = np.zeros(3, dtype=encoding.dtype)
    for signal, noise in zip(signals, noises):
        total += encoding.encode(signal, "silo0", noise)
    for column, value in zip(np.concatenate([signals, noises]).T, encoding.decode(total)):
        # Exactly: below 2^53 grid steps, decoding rounds nothing.
        assert abs(Fraction(float(value)) - sum(map(Fraction, column))) <= Fraction(
            encoding.rounding
        )


@given(SPANS, st.integers(1, 40), st.integers(0, 2**32 - 1))
def test_rounding_moves_signals_apart_by_no_more_than_the_shift(span, parties, seed):
    # 32 bits: there float64's own rounding is nothing beside a grid step.
    encoding, rng = FixedPoint(32, span, parties), np.random.default_rng(seed)
    near = rng.uniform(-span, span, (2, parties, 30))
    one, two = (
        encoding.decode(sum(encoding.encode(vector, "silo0") for vector in side)) for side in near
    )
    apart = np.linalg.norm(near[0].sum(0) - near[1].sum(0))
    assert abs(np.linalg.norm(one - two) - apart) <= encoding.shift(30) * (1 + 1e-6)


@pytest.mark.parametrize("value", [1.0001, -1.0001, np.inf, np.nan])
def test_out_of_range_is_an_error_that_names_the_key(value):
    with pytest.raises(OutOfRangeError, match=r"aggregation\.range=1: .*silo2"):
        FixedPoint(64, 1.0, 2).encode(np.array([0.0, value]), "silo2")


@pytest.mark.parametrize(("bits", "span"), [(16, 1.0), (64, 0.0), (64, np.inf), (32, 2.0**31)])
def test_impossible_rings_are_refused(bits, span):
    with pytest.raises(ConfigError, match=r"aggregation\.(bits|range)"):
        precision(bits, span, 2)


def test_the_nearest_vector_on_the_grid_is_within_half_a_step():
    encoding = FixedPoint(32, 100.0, 3)
    vector = np.random.default_rng(0).uniform(-100, 100, 1000)
    near = encoding.nearest(vector)
    assert (near / encoding.unit == np.rint(near / encoding.unit)).all()
    assert 0 < abs(near - vector).max() <= encoding.unit / 2


def test_the_range_holds_for_signal_and_noise_together():
    encoding = FixedPoint(64, 1.0, 2)
    near, far = np.array([0.9]), np.array([-0.9])
    assert abs(encoding.decode(encoding.encode(near, "silo2", far))) <= encoding.rounding
    for signal in (near, far):
        with pytest.raises(OutOfRangeError):
            encoding.encode(signal, "silo2", signal)


def test_the_shift_is_a_step_a_party_in_every_coordinate():
    """Too large a number is safe, and charges for what nobody sees."""
    encoding = FixedPoint(32, 1.0, 6)
    assert encoding.shift(9) == 6 * 3 * encoding.unit
    assert encoding.rounding == 6 * encoding.unit


@pytest.mark.parametrize("bits", [32, 64])
def test_signal_and_noise_go_to_the_nearest_step_each(bits):
    """Rounded otherwise a party could be off by more than a step, which is all that a certificate
    allows for."""
    encoding = FixedPoint(bits, 10.0, 1)
    parts, nearest = (
        np.array([0.4, 0.6, 1.4, 1.6, -0.4, -0.6, -1.6]),
        np.array([0, 1, 1, 2, 0, -1, -2]),
    )
    steps = parts * encoding.unit
    np.testing.assert_array_equal(
        encoding.decode(encoding.encode(steps, "silo0")) / encoding.unit, nearest
    )
    np.testing.assert_array_equal(
        encoding.decode(encoding.encode(steps, "silo0", steps)) / encoding.unit, 2 * nearest
    )
    np.testing.assert_array_equal(encoding.decode(encoding.whole(steps)) / encoding.unit, nearest)


@pytest.mark.parametrize("bits", [32, 64])
def test_a_sum_is_refused_from_one_step_beyond_what_honest_parties_reach(bits):
    """Each reaches its range and a step, for rounding signal and noise apart."""
    encoding = FixedPoint(bits, 2.0, 3)
    most = 3 * (2 * 2**encoding.precision + 1)
    for other in (0, most - 1, 1 - most):
        for edge in (most, -most):
            there, beyond = (
                np.array([step, other]).astype(encoding.dtype)
                for step in (edge, edge + edge // most)
            )
            assert encoding.decode(there)[0] == edge * encoding.unit
            assert not encoding.reached_by(3, beyond)
            with pytest.raises(ImpossibleSumError, match="beyond 3 times 2"):
                encoding.decode(beyond)
    assert not encoding.reached_by(3, np.array([most + 1, most + 2]).astype(encoding.dtype))
    assert not encoding.reached_by(3, np.array([-most - 1, -most - 2]).astype(encoding.dtype))
