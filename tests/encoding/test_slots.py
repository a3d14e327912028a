import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedpriv.encoding.fixed_point import OutOfRangeError
from fedpriv.encoding.slot_layout import SlotLayout
from fedpriv.encoding.slots import SlotEncoding

LAYOUT = SlotLayout(512, 20, 20, users=3, silos=2, bound=1.0, noise=5.0)
ENCODING = SlotEncoding(LAYOUT)
N = (1 << 511) + 9  # any number of 512 bits; no prime factors are needed to pack


def test_a_clipped_coordinate_may_pass_the_bound_by_what_float64_loses():
    slightly = np.array([[1 + 1e-13, -1 - 1e-13, 0.5]])
    limit = LAYOUT.coordinate_bound
    assert ENCODING.coefficients(slightly).tolist() == [[limit, -limit, 2**19]]
    for value in (1 + 1e-11, -1 - 1e-11, math.nan):
        with pytest.raises(OutOfRangeError):
            ENCODING.coefficients(np.array([[0.0, value]]))


@pytest.mark.parametrize("dither", [0, LAYOUT.lcm - 1])
def test_noise_is_floored_and_dithered(dither):
    noise = np.array([2.0**-20, -(2.0**-21), 1.75, -3.0])
    values = LAYOUT.unpack([p % N for p in ENCODING.plaintexts(noise, lambda bound: dither)], N, 4)
    assert values == [LAYOUT.lcm * steps + dither for steps in (1, -1, 7 * 2**18, -3 * 2**20)]


@given(st.integers(0, 2**32 - 1))
def test_a_decoded_sum_is_within_the_stated_rounding(seed):
    rng = np.random.default_rng(seed)
    counts = rng.integers(1, 11, (LAYOUT.silos, LAYOUT.users))
    weights = [
        [Fraction(int(n), int(total)) for n, total in zip(row, counts.sum(axis=0))]
        for row in counts
    ]
    sums, exact = [0] * 4, [Fraction(0)] * 4
    for row in weights:
        vectors, noise = rng.uniform(-1, 1, (LAYOUT.users, 4)), rng.uniform(-5, 5, 4)
        units = ENCODING.coefficients(vectors).tolist()
        plain = [
            sum(int(LAYOUT.lcm * w) * u for w, u in zip(row, column)) for column in zip(*units)
        ]
        packed = ENCODING.plaintexts(noise, lambda bound: int(rng.integers(bound)))
        noises = LAYOUT.unpack([p % N for p in packed], N, 4)
        sums = [total + x + z for total, x, z in zip(sums, plain, noises)]
        real = [sum(w * Fraction(x) for w, x in zip(row, column)) for column in vectors.T]
        exact = [total + x + Fraction(z) for total, x, z in zip(exact, real, noise)]
    for decoded, value in zip(LAYOUT.decode(sums), exact):
        assert abs(Fraction(float(decoded)) - value) <= Fraction(ENCODING.rounding) * (
            1 + Fraction(1, 2**40)
        )


def test_its_numbers_are_in_grid_steps():
    assert ENCODING.unit == 2.0**-20
    assert ENCODING.shift(100) == 10 * 2.0**-20
    assert ENCODING.rounding == (3 + 2) * 2.0**-20
    assert str(ENCODING.too_coarse(3.0)).startswith(
        "aggregation.precision=20: too few digits: a noise share would span 3 "
    )
    assert str(ENCODING.too_fine(2.0**60)).startswith("aggregation.precision=20: too many digits: ")


def test_its_messages_are_never_sent_in_the_clear():
    with pytest.raises(ValueError, match="messages in SlotEncoding are not sent in the clear"):
        ENCODING.clear(np.zeros(3))
