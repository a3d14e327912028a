import math

import numpy as np
import pytest

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
