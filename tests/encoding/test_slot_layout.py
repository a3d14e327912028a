import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedpriv.encoding.fixed_point import OutOfRangeError
from fedpriv.encoding.slot_layout import SlotLayout, SlotOverflowError, lcm_up_to, truncate
from fedpriv.errors import ConfigError

N = (1 << 511) + 9  # any number of 512 bits; no prime factors are needed to pack


def layout(**changes):
    usual = {
        "key_bits": 512,
        "n_max": 20,
        "precision": 20,
        "users": 5,
        "silos": 2,
        "bound": 1.0,
        "noise": 5.0,
    }
    return SlotLayout(**(usual | changes))


def test_least_common_multiples():
    assert lcm_up_to(1) == 1
    assert lcm_up_to(10) == 2520
    # Chebyshev's function: log lcm(1..n) is about n.
    assert [lcm_up_to(n).bit_length() for n in (100, 1000, 2000)] == [136, 1438, 2878]


def test_the_largest_cap_on_records_of_a_3072_bit_key():
    # Precision 1e-10, sums up to 1e4, one value in a plaintext: lcm * 1e4 / 1e-10 < n / 2 up to
    # N_max = 2098.
    assert lcm_up_to(2098) * 10**14 < 2**3071 // 2 <= lcm_up_to(2099) * 10**14
    finer = {"key_bits": 3072, "precision": 33, "users": 1, "silos": 1, "bound": 1e4, "noise": 0.0}
    assert layout(**finer, n_max=2098).slots == 1
    with pytest.raises(
        ConfigError,
        match=r"n_max=2099: one slot needs width <= key_bits - 2, but .* = 3\d\d\d > 3072 - 2",
    ):
        layout(**finer, n_max=2099)


@given(
    st.integers(1, 40),
    st.integers(1, 30),
    st.integers(1, 1000),
    st.integers(1, 50),
    st.floats(1e-3, 1e3),
    st.floats(0, 1e3),
)
def test_the_inequalities_hold(n_max, precision, users, silos, bound, noise):
    try:
        shape = layout(
            n_max=n_max, precision=precision, users=users, silos=silos, bound=bound, noise=noise
        )
    except ConfigError:
        assert bound * 2**precision <= 1
        return
    unit = Fraction(1, 2**precision)
    # Every weight is at most 1 in the sum over silos; the dither is below one unit times C_LCM.
    reachable = users * shape.coordinate_bound + silos * (math.floor(Fraction(noise) / unit) + 2)
    assert shape.coordinate_bound * unit < bound <= (shape.coordinate_bound + 1) * unit
    assert shape.lcm * reachable <= shape.total_bound < 2 ** (shape.width - 1)
    assert shape.slots * shape.width <= 510 < (shape.slots + 1) * shape.width
    assert (shape.noise_bound - 1) * unit <= noise < shape.noise_bound * unit
    assert 2 ** (shape.coordinate_bits - 1) <= 2 * shape.coordinate_bound < 2**shape.coordinate_bits


@pytest.mark.parametrize(
    "wrong",
    [
        {"precision": -1},
        {"precision": 63},
        {"bound": 0.0},
        {"precision": 50, "bound": 1e4},
        {"precision": 2, "bound": 0.25},
        {"n_max": 400},
    ],
)
def test_an_impossible_layout_is_refused(wrong):
    with pytest.raises(ConfigError):
        layout(**wrong)


@st.composite
def totals(draw):
    shape = layout()
    limit = shape.total_bound
    size = draw(st.integers(1, 3 * shape.slots + 1))
    value = st.one_of(st.sampled_from([0, 1, -1, limit, -limit]), st.integers(-limit, limit))
    return shape, draw(st.lists(value, min_size=size, max_size=size))


@given(totals())
def test_slots_come_back_modulo_n(case):
    shape, values = case
    plaintexts = shape.pack(values)
    assert len(plaintexts) == shape.columns(len(values)) == -(-len(values) // shape.slots)
    assert shape.unpack([p % N for p in plaintexts], N, len(values)) == values


def test_a_slot_that_overflows_raises_and_never_reaches_its_neighbour():
    shape = layout()
    for value in (shape.total_bound + 1, -shape.total_bound - 1, 1 << shape.width):
        with pytest.raises(SlotOverflowError):
            shape.pack([0, value])
        with pytest.raises(SlotOverflowError):
            shape.unpack([value % N], N, 1)
        with pytest.raises(SlotOverflowError):
            shape.unpack([(value << shape.width) % N], N, 2)
    with pytest.raises(SlotOverflowError):
        shape.unpack([N // 3], N, shape.slots)  # as after a mask that does not cancel


@given(st.lists(st.floats(-1, 1), min_size=1, max_size=8))
def test_truncation_goes_towards_zero_by_one_unit_at_most(values):
    shape, x = layout(), np.array(values)
    units = shape.truncate(x)
    assert units.dtype == np.int64
    for real, unit in zip(values, units.tolist()):
        error = abs(Fraction(real)) - Fraction(abs(unit), 2**20)
        assert 0 <= error < Fraction(1, 2**20) or (abs(real) == 1 and error == Fraction(1, 2**20))
        assert unit * real >= 0
    assert np.linalg.norm(units / 2**20) <= np.linalg.norm(x)


@pytest.mark.parametrize("value", [1.0000001, -1.5, math.inf, math.nan])
def test_coordinates_beyond_the_bound_are_refused(value):
    with pytest.raises(OutOfRangeError):
        layout().truncate(np.array([0.0, value]))


def test_truncation_refuses_what_leaves_int64():
    np.testing.assert_array_equal(
        truncate(np.array([[1.75, -1.75], [0.0, -0.3]]), 1), [[3, -3], [0, 0]]
    )
    for value in (2.0**42, -(2.0**42), math.inf, math.nan):
        with pytest.raises(OutOfRangeError):
            truncate(np.array([value]), 20)


def test_the_dither_is_uniform_below_the_least_common_multiple():
    shape = layout(n_max=4)  # lcm 12
    noise = np.full(12_000, -3)
    drawn = np.array(shape.dithered(noise))
    assert (drawn // 12 == -3).all()  # floored: the noise is what lies above the dither
    counts = np.bincount(drawn % 12, minlength=12)
    assert (
        (counts - 1000) ** 2 / 1000
    ).sum() < 60  # chi-square, 11 degrees: exceeded with probability 1e-8
    with pytest.raises(OutOfRangeError):
        shape.dithered(np.array([shape.noise_bound + 1]))


def test_decoding_is_correctly_rounded():
    shape = layout()
    values = [0, 1, -1, shape.lcm << 20, shape.total_bound, 10**25 + 7]
    exact = [float(Fraction(v, shape.lcm << 20)) for v in values]
    np.testing.assert_array_equal(shape.decode(values), exact)


def test_the_ends_of_what_is_allowed_are_allowed():
    """0 and 62 binary digits, and a bound that leaves one integer to each side of zero."""
    least = SlotLayout(512, 20, 0, users=3, silos=2, bound=2.0, noise=0.0)
    assert least.coordinate_bound == 1
    most = SlotLayout(512, 20, 62, users=3, silos=2, bound=0.5, noise=0.0)
    assert most.coordinate_bound == 2**61 - 1
    for key, value, name in (
        ("precision", -1, "precision"),
        ("precision", 63, "precision"),
        ("bound", 0.0, "precision"),
    ):
        settings = {"precision": 20, "bound": 1.0} | {key: value}
        with pytest.raises(ConfigError, match=rf"aggregation\.{name}="):
            SlotLayout(512, 20, users=3, silos=2, noise=5.0, **settings)


def test_a_slot_is_as_wide_as_its_largest_total_and_no_wider():
    """Three users' coordinates and two silos' noise and dithers, in units of 2^-20 times the least
    common multiple."""
    shape = SlotLayout(512, 20, 20, users=3, silos=2, bound=1.0, noise=5.0)
    assert shape.noise_bound == 5 * 2**20 + 1
    largest = 232_792_560 * (3 * (2**20 - 1) + 2 * (5 * 2**20 + 2))
    assert shape.total_bound == largest
    assert 2 ** (shape.width - 2) <= largest < 2 ** (shape.width - 1)


def test_noise_may_reach_its_bound_but_not_pass_it():
    shape = SlotLayout(512, 20, 20, users=3, silos=2, bound=1.0, noise=5.0)
    most = shape.noise_bound
    assert shape.dithered(np.array([most, -most]), lambda bound: 0) == [
        shape.lcm * most,
        -shape.lcm * most,
    ]
    for beyond in (most + 1, -most - 1):
        with pytest.raises(OutOfRangeError, match="noise beyond"):
            shape.dithered(np.array([0, beyond]))
