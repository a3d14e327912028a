"""MNIST, odd or even: 25 silos, each with one even and one odd digit; an image is given by 50
principal components."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedpriv.data.base import Corpus, DataSet, Records
from fedpriv.data.files import locate
from fedpriv.data.mnist import FILES, MEAN, STD, read_part
from fedpriv.data.split import share, stratified
from fedpriv.errors import DataError
from fedpriv.models.tasks import Classification
from fedpriv.util.streams import Streams

EVEN = (0, 2, 4, 6, 8)
ODD = (1, 3, 5, 7, 9)
PAIRS = tuple((even, odd) for even in EVEN for odd in ODD)
"""The two digits of each silo."""
COMPONENTS = 50
SEVENTH = 7
"""A silo gets a seventh of the rarest digit's number of images of each of its digits: 774 of
5,421."""
LABELS = FILES["train-labels-idx1-ubyte"]
TEST = 0.2
"""Share of test records."""


@dataclass(frozen=True)
class MnistOddEven(DataSet):
    """Even and odd digits; even ones have label 1.

    Lowy, Ghafelebashi, Razaviyayn (AISTATS 2023), Appendix H.2, after Woodworth, Patel, Srebro
    (NeurIPS 2020): the 60,000 official training images, normalised with mean 0.1307 and deviation
    0.3081 and projected onto their 50 principal components. Every silo has 774 images of each of
    its digits, of which 20 % are test records (1,238 and 310 records).

    replacement: whether silos draw images with replacement, as in the program: each digit keeps 774
        images, and its five silos draw from them. One image is then in many rows, in several silos
        and on both sides of the split, and an epsilon for a record protects one row. Without it, no
        image is drawn twice in the whole federation.
    """

    replacement: bool = False

    shape = (COMPONENTS,)
    outputs = 2
    task = Classification()
    natural_silos = len(PAIRS)

    @property
    def not_covered(self) -> tuple[str, ...]:
        fitted = "the principal components are computed from all images"
        rows = "several records are one image: an epsilon for a record does not cover the image"
        return (fitted, rows) if self.replacement else (fitted,)

    @property
    def disjoint_test(self) -> bool:
        return not self.replacement

    def load(self, streams: Streams) -> Corpus:
        features, digits = projected(self.root)
        rng = streams.generator("images of silos")
        draw = _with_replacement if self.replacement else _without_replacement
        drawn = draw(digits, rng)
        rows = np.concatenate(drawn)
        silo = np.repeat(np.arange(len(PAIRS)), len(drawn[0]))
        n_test = share(len(drawn[0]), TEST) * len(PAIRS)
        train, test = stratified(silo, n_test, streams.generator("train/test split"))
        x = features[rows]
        y = (digits[rows] % 2 == 0).astype(np.int64)
        return Corpus(Records(x[train], y[train], silo[train]), Records(x[test], y[test]))


def projected(root: str | None) -> tuple[np.ndarray, np.ndarray]:
    """Components (n, 50) float32 and digits (n,) of the official training part. Raises
    DataError."""
    from sklearn.decomposition import PCA

    images, digits = read_part("train", root)
    counts = np.bincount(digits, minlength=10)
    if counts.min() < SEVENTH or len(images) < COMPONENTS:
        raise DataError(
            f"{locate(LABELS, root)}: {counts.min()} images of digit {counts.argmin()}, too few "
            "for 5 silos"
        )
    table = (np.arange(256, dtype=np.float32) / 255 - np.float32(MEAN)) / np.float32(STD)
    pixels = table[images].reshape(len(images), -1)
    components = PCA(COMPONENTS, svd_solver="covariance_eigh").fit_transform(pixels)
    return np.ascontiguousarray(components, dtype=np.float32), digits


def _without_replacement(digits: np.ndarray, rng: np.random.Generator) -> list[np.ndarray]:
    """Row numbers of each silo's images."""
    each = np.bincount(digits).min() // SEVENTH
    order = {digit: rng.permutation(np.flatnonzero(digits == digit)) for digit in range(10)}
    rows = []
    for even, odd in PAIRS:
        first = ODD.index(odd) * each
        second = EVEN.index(even) * each
        rows.append(
            np.concatenate([order[even][first : first + each], order[odd][second : second + each]])
        )
    return rows


def _with_replacement(digits: np.ndarray, rng: np.random.Generator) -> list[np.ndarray]:
    """Row numbers of each silo's images, drawn with replacement from equally many images per
    digit."""
    each = np.bincount(digits).min() // SEVENTH
    pool = {digit: rng.permutation(np.flatnonzero(digits == digit))[:each] for digit in range(10)}
    return [rng.choice(np.concatenate([pool[even], pool[odd]]), 2 * each) for even, odd in PAIRS]
