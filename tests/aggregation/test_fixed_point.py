from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from fedpriv.aggregation.fixed_point import FixedPoint, OutOfRange, precision
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
        return parties * (Fraction(span) * Fraction(2) ** f + Fraction(1, 2)) < 2 ** (bits - 1)

    assert f == -1 or fits(f)
    assert f == bits or not fits(f + 1)


@given(RINGS, SPANS, st.integers(1, 40), st.data())
def test_sum_is_within_the_stated_rounding(bits, span, parties, data):
    code = FixedPoint(bits, span, parties)
    vectors = data.draw(arrays(np.float64, (parties, 3), elements=st.floats(-span, span)))
    total = np.zeros(3, dtype=code.dtype)
    for vector in vectors:
        total += code.encode(vector, "silo0")
    decoded = code.decode(total)
    for column, value in zip(vectors.T, decoded):
        exact = sum(map(Fraction, column))
        last_place = Fraction(float(np.spacing(abs(value))))
        assert abs(Fraction(float(value)) - exact) <= Fraction(code.rounding) + last_place


@pytest.mark.parametrize("bits", [32, 64])
def test_everyone_at_the_edge_of_the_range_does_not_wrap(bits):
    code = FixedPoint(bits, 12.0, 1000)
    for edge in (12.0, -12.0):
        total = np.zeros(1, dtype=code.dtype)
        for _ in range(1000):
            total += code.encode(np.array([edge]), "silo0")
        assert code.decode(total) == 1000 * edge


@pytest.mark.parametrize("value", [1.0001, -1.0001, np.inf, np.nan])
def test_out_of_range_is_an_error_that_names_the_key(value):
    with pytest.raises(OutOfRange, match=r"aggregation\.range=1: .*silo2"):
        FixedPoint(64, 1.0, 2).encode(np.array([0.0, value]), "silo2")


@pytest.mark.parametrize(("bits", "span"), [(16, 1.0), (64, 0.0), (64, np.inf), (32, 2.0**31)])
def test_impossible_rings_are_refused(bits, span):
    with pytest.raises(ConfigError, match=r"aggregation\.(bits|range)"):
        precision(bits, span, 2)
