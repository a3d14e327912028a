"""Vectors of several pieces give the same bits as one computation on the whole vector."""

import numpy as np
import pytest
import torch

from fedpriv.aggregation.plain import Plain
from fedpriv.aggregation.weighted import WeightedSilo
from fedpriv.encoding.fixed_point import FixedPoint, OutOfRangeError
from fedpriv.mechanisms.gaussian import Gaussian
from fedpriv.rounds.contributors import UniformWeighting
from fedpriv.rounds.local_job import LocalJob
from fedpriv.training.contributions import Contributions
from fedpriv.util.pieces import PIECE, pieces
from tests.queries import query_for

SIZE = 2 * PIECE + 13


def _numbers(seed, *shape):
    return np.random.default_rng(seed).standard_normal(shape)


def test_pieces_cover_a_vector_once_and_in_order():
    for size in (0, 1, PIECE - 1, PIECE, PIECE + 1, SIZE):
        found = [*pieces(size)]
        assert all(piece.stop - piece.start <= PIECE for piece in found)
        covered = [place for piece in found for place in range(piece.start, piece.stop)]
        assert covered == [*range(size)]


def test_a_noise_share_is_one_draw():
    share = Gaussian(2.0, 3.0).noise_share(SIZE, 4, np.random.default_rng(1), sensitivity=0.7)
    whole = np.random.default_rng(1).standard_normal(SIZE)
    np.testing.assert_array_equal(share, whole * Gaussian(2.0, 3.0).share_deviation(4, 0.7))


def test_a_silo_sums_as_products_of_whole_vectors_do():
    silo = WeightedSilo("silo0", ("silo0", "silo1"), UniformWeighting())
    silo.weights = np.array([0.3, 0.7, 1 / 3])
    rows = torch.from_numpy(_numbers(2, 3, SIZE))
    noise = _numbers(3, SIZE)
    blocks = [Contributions(np.array([unit]), rows[[unit]]) for unit in (2, 0, 1)]
    expected = np.zeros(SIZE)
    for block in blocks:
        expected += (torch.from_numpy(silo.weights[block.units]) @ block.vectors).numpy()
    np.testing.assert_array_equal(silo.weighted_sum(LocalJob(iter(blocks), noise)), expected)


def test_a_row_that_messages_repeat_is_not_changed_by_the_noise():
    silo = WeightedSilo("silo0", ("silo0", "silo1"), UniformWeighting())
    silo.weights = np.ones(1)
    query = query_for(Plain(), 2, size=4)
    assert query.encoding is None
    kept = []

    def row(own):
        kept.append(own)
        return own

    block = Contributions(np.array([0]), torch.ones(1, 4, dtype=torch.float64))
    noised = silo.noised_sum(query, LocalJob(iter([block]), np.full(4, 5.0), row=row))
    assert noised.tolist() == [6.0] * 4
    assert kept[0].tolist() == [1.0] * 4


def test_encoding_rounds_and_refuses_each_number_alike():
    encoding = FixedPoint(64, 100.0, 3)
    signal, noise = _numbers(4, 2, SIZE)
    scale = 2.0**encoding.precision
    whole = (np.rint(signal * scale) + np.rint(noise * scale)).astype(np.int64).view(np.uint64)
    np.testing.assert_array_equal(encoding.encode(signal, "silo0", noise), whole)
    for place in (0, PIECE, SIZE - 1):
        for wrong in (100.5, np.nan):
            far = signal.copy()
            far[place] = wrong
            with pytest.raises(OutOfRangeError, match="silo0"):
                encoding.encode(far, "silo0")
