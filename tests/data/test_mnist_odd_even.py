from pathlib import Path

import numpy as np
import pytest
from small_data import idx, write_mnist

from fedpriv.data.mnist import read_part
from fedpriv.data.mnist_odd_even import PAIRS, MnistOddEven, projected
from fedpriv.errors import DataError
from fedpriv.util.streams import Streams


def test_every_silo_holds_one_even_and_one_odd_digit(small_root):
    corpus = MnistOddEven(small_root).load(Streams(0))
    features, known = projected(small_root)
    digit_of = {row.tobytes(): digit for row, digit in zip(features, known)}
    digits = np.array([digit_of[row.tobytes()] for row in corpus.train.x])
    assert len(set(PAIRS)) == 25
    for silo, pair in enumerate(PAIRS):
        assert set(digits[corpus.train.silo == silo]) == set(pair)
    np.testing.assert_array_equal(corpus.train.y, digits % 2 == 0)


def test_no_image_is_drawn_twice_unless_asked_for(small_root):
    alone = MnistOddEven(small_root).load(Streams(0))
    rows = [row.tobytes() for part in (alone.train, alone.test) for row in part.x]
    assert len(set(rows)) == len(rows) == 25 * 20  # a seventh of 70 images, twice a silo
    drawn = MnistOddEven(small_root, replacement=True).load(Streams(0))
    rows = [row.tobytes() for part in (drawn.train, drawn.test) for row in part.x]
    assert len(rows) == 25 * 20
    assert len(set(rows)) <= 10 * 10  # every digit's pool
    assert "does not cover the image" in MnistOddEven(replacement=True).not_covered[-1]
    assert len(MnistOddEven().not_covered) == 1


def test_features_are_principal_components(tmp_path):
    """Against a singular value decomposition of the centred images, up to signs."""
    write_mnist(tmp_path)
    images, _ = read_part("train", str(tmp_path))
    x = images.reshape(len(images), -1) / 255 / 0.3081
    left, singular, _ = np.linalg.svd(x - x.mean(axis=0), full_matrices=False)
    found = projected(str(tmp_path))[0]
    np.testing.assert_allclose(np.abs(found), np.abs(left * singular)[:, :50], rtol=0.05, atol=0.02)


def test_too_few_images_are_one_line(tmp_path):
    write_mnist(tmp_path)
    labels = np.arange(700) % 9
    (tmp_path / "MNIST/raw/train-labels-idx1-ubyte").write_bytes(idx(labels))
    with pytest.raises(
        DataError, match=r"train-labels.*: 0 images of digit 9, too few for 5 silos$"
    ):
        MnistOddEven(str(tmp_path)).load(Streams(0))


def test_the_papers_sizes(real_root):
    """Lowy, Ghafelebashi, Razaviyayn, Appendix H.2: 774 images of each of two digits, 1,238 of them
    for training."""
    if not (Path(real_root) / "MNIST").is_dir():
        pytest.skip("no MNIST there")
    for replacement in (False, True):
        corpus = MnistOddEven(real_root, replacement=replacement).load(Streams(0))
        np.testing.assert_array_equal(np.bincount(corpus.train.silo), [1238] * 25)
        assert len(corpus.test) == 25 * 310
