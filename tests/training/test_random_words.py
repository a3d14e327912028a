import numpy as np
import pytest
import torch
from hypothesis import strategies as st

from fedpriv.training.random_words import (
    random_words,
    row_counters,
    threshold,
    words_by_torch,
)
from fedpriv.util.streams import GAMMA, branch, mix64

CPU = torch.device("cpu")
WORDS = st.integers(0, 2**64 - 1)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an accelerator")
def test_an_accelerator_draws_what_a_processor_does():
    keys, rows = branch(np.zeros(1, np.uint64), np.arange(9)), row_counters([(1, 2)], 0, 5)
    there = random_words(keys, rows, 7, torch.device("cuda")).cpu()
    assert torch.equal(there, random_words(keys, rows, 7, CPU))


def test_torch_gives_the_words_that_numpy_does():
    keys, rows = branch(np.zeros(1, np.uint64), np.arange(9)), row_counters([(1, 2)], 0, 5)
    columns = np.uint64(GAMMA) * np.arange(1, 5, dtype=np.uint64)
    there = words_by_torch(mix64(keys[:, None] + rows)[..., None], columns, CPU)
    assert torch.equal(there, random_words(keys, rows, 8, CPU))


@pytest.mark.parametrize("features", [1, 2, 7])
def test_words_are_halves_of_branches(features):
    keys, rows = branch(np.zeros(1, np.uint64), np.arange(3)), row_counters([(4, 0)], 2, 5)
    words = random_words(keys, rows, features, CPU).numpy()
    assert words.shape == (3, 5, features)
    pairs = branch(mix64(keys[:, None] + rows)[..., None], np.arange((features + 1) // 2))
    np.testing.assert_array_equal(words, pairs.view(np.int32)[..., :features])


def test_rows_have_names_of_their_own():
    paths = [(0,), (1,), (0, 0), (0, 1), (1, 0), (0, 0, 0)]
    names = row_counters(paths, 0, 1000)
    assert len(np.unique(names)) == names.size
    np.testing.assert_array_equal(row_counters([(3, 1)], 5, 4), row_counters([(3, 1)], 0, 9)[:, 5:])


@pytest.mark.parametrize("p", [0.1, 0.5, 0.99, 1.0])
def test_the_threshold_is_that_of_a_uniform_word(p):
    above = 2**31 - 1 - threshold(p)
    assert above / 2**32 == pytest.approx(1 - p, abs=2**-32)
