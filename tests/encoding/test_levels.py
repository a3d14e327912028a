import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedpriv.encoding.levels import MAX_COUNT, TILE, Levels, OutsideError, tiles
from fedpriv.errors import ConfigError


def seeded(seed):
    rng = np.random.default_rng(seed)
    return lambda positions, columns: rng.random((len(positions), columns.stop - columns.start))


@given(st.integers(0, 2**31), st.sampled_from([2, 4, 64, 4096]), st.floats(1e-3, 1e3))
def test_a_record_and_its_replacement_are_no_further_apart_than_the_shift(seed, levels, clip):
    """With the same random numbers: within the distance of the vectors and sqrt(d) levels."""
    encoding, rng = Levels(levels, clip, 0, 1), np.random.default_rng(seed)
    pair = rng.normal(size=(2, 40))
    pair *= clip / np.linalg.norm(pair, axis=1, keepdims=True)
    one, other = (encoding.counts(vector[None], seeded(seed)) for vector in pair)
    real = np.linalg.norm(pair[0] - pair[1]) / encoding.unit
    assert np.linalg.norm(one - other) <= real + np.sqrt(40) + 1e-9
    assert real <= levels + 1e-9
    assert np.sqrt(40) * encoding.unit == pytest.approx(encoding.shift(40))


def test_nothing_is_random_where_nothing_is_contributed():
    encoding = Levels(10, 2.0, 8, 3)
    ones = encoding.counts(np.zeros((6, 4)), seeded(0))
    np.testing.assert_array_equal(ones, np.full(4, 6 * 5))
    np.testing.assert_array_equal(encoding.decode(ones + 2 * 6 * 5 + 3 * 2, 6), np.zeros(4))


@pytest.mark.parametrize("shape", [(1, 1), (3, TILE + 5), (TILE + 5, 1), (1000, 400)])
def test_tiles_cover_every_cell_once_and_are_small(shape):
    table = np.zeros(shape, dtype=int)
    for rows, columns in tiles(*shape):
        table[rows, columns] += 1
        assert table[rows, columns].size <= TILE
    assert (table == 1).all()


@pytest.mark.parametrize("bad", [1.001, -1.001, np.nan, np.inf])
def test_a_coordinate_beyond_the_bound_is_refused(bad):
    with pytest.raises(OutsideError, match=r"algo\.clip=1"):
        Levels(4, 1.0, 0, 1).counts(np.array([[0.0, bad]]), seeded(0))


def test_ends_of_the_range_have_the_last_levels():
    ones = Levels(4, 1.0, 0, 1).counts(
        np.array([[1.0, -1.0, 1 + 1e-12]]), lambda p, c: np.full((1, 3), 1 - 2**-53)
    )
    np.testing.assert_array_equal(ones, [4, 0, 4])


def test_sums_that_could_leave_exact_integers_are_refused_before_anything_is_counted():
    fits = Levels(4096, 1.0, 0, 25)
    units = MAX_COUNT // (25 * 4096)
    assert fits.most(units) * 25 <= MAX_COUNT
    with pytest.raises(ConfigError, match=r"mechanism\.levels=4096"):
        fits.most(units + 1)
    with pytest.raises(ConfigError, match="noise bits a coordinate"):
        Levels(4096, 1.0, MAX_COUNT // 4, 3)


@pytest.mark.parametrize("levels", [0, 1, 7, 2**41])
def test_odd_and_impossible_levels_are_refused(levels):
    with pytest.raises(ConfigError, match=r"mechanism\.levels"):
        Levels(levels, 1.0, 0, 1)


def test_one_message_in_the_clear_differs_from_another_by_what_was_contributed():
    encoding = Levels(8, 1.0, 4, 3)
    messages = [encoding.counts(np.array([[x, 0.0]]), seeded(0)) for x in (-0.5, 0.75)]
    np.testing.assert_allclose(encoding.clear(messages[1]) - encoding.clear(messages[0]), [1.25, 0])


def test_counts_stop_at_what_floats_hold_exactly_and_not_before():
    assert MAX_COUNT == 2**52
    assert Levels(4, 1.0, 0, 1).most(2**50) == MAX_COUNT
    assert Levels(4, 1.0, 8, 3).most(5) == 5 * 4 + 8
    with pytest.raises(ConfigError, match=r"mechanism\.levels=4"):
        Levels(4, 1.0, 4, 1).most(2**50)
    assert Levels(2**40, 1.0, MAX_COUNT // 2, 1).trials == MAX_COUNT // 2
    with pytest.raises(ConfigError, match="noise bits a coordinate"):
        Levels(2**40, 1.0, MAX_COUNT // 2 + 4, 1)


def test_how_much_noise_there_is_makes_no_other_encoding():
    assert Levels(8, 1.0, 4, 3) == Levels(8, 1.0, 8, 3)
    assert Levels(8, 1.0, 4, 3) != Levels(8, 1.0, 4, 2)


def test_noise_is_counted_in_levels_above_a_quarter_of_its_bits():
    encoding = Levels(8, 1.0, 8, 3)
    noise = encoding.unit * np.array([0.0, 1.0, -0.6, -0.4, 0.4, 0.6, 5.0])
    np.testing.assert_array_equal(encoding.noise_counts(noise), [2, 3, 1, 2, 2, 3, 7])
    message = encoding.counts(np.zeros((6, 7)), seeded(0)) + encoding.noise_counts(noise)
    np.testing.assert_allclose(
        encoding.decode(3 * message, 6), 3 * encoding.unit * np.array([0, 1, -1, 0, 0, 1, 5])
    )


def test_tiles_are_no_smaller_than_they_have_to_be():
    assert tiles(1000, 16) == [(slice(0, 1000), slice(0, 16))]
    assert len(tiles(2 * TILE, 1)) == 2
    assert len(tiles(2, TILE + 1)) == 4
