"""Sums of clipped gradients in C++: what a record may do to the others, and to the sum."""

import numpy as np
import pytest
import torch
from clipped_problems import (
    OfRecurrence,
    OfSequences,
    clipped_gradients,
    exactly_one_by_one,
)
from drawn_networks import traceable
from torch import nn

from fedpriv.models.tasks import Classification
from fedpriv.training.clipped import NO_KEYS
from fedpriv.training.trainers.compiled.library import library
from fedpriv.training.vectors import flatten

needs_compiler = pytest.mark.skipif(library() is None, reason="needs a C++ compiler")
N = 24
SICK = 7
CLASSES = 3


def transformer(width, words=0):
    layer = nn.TransformerEncoderLayer(width, 2, 11, 0.0, batch_first=True)
    return OfSequences(layer, width, CLASSES, words)


def convolutions():
    return nn.Sequential(
        nn.Conv2d(2, 3, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(27, 3)
    )


class Decoder(nn.Module):
    """A convolution of images that linear layers make, whose numbers do not fill whole vectors."""

    def __init__(self, pooled):
        super().__init__()
        self.first = nn.Sequential(nn.Linear(5, 70), nn.Tanh(), nn.Linear(70, 64), nn.Tanh())
        self.pixels = nn.Linear(64, 50)
        self.convolution = nn.Conv2d(2, 1, 2)
        self.pool = nn.AvgPool2d(2) if pooled else nn.Identity()
        self.last = nn.Linear(4 if pooled else 16, CLASSES)

    def forward(self, x):
        h = self.pixels(self.first(x))
        h = self.pool(self.convolution(h.view(h.size(0), 2, 5, 5)))
        return self.last(torch.flatten(h, 1))


NETWORKS = {
    "rows": (lambda: nn.Sequential(nn.Linear(5, 9), nn.GELU(), nn.Linear(9, 3)), (5,)),
    "images": (convolutions, (2, 6, 6)),
    "lstm": (lambda: OfRecurrence(nn.LSTM(6, 9, batch_first=True), 9, CLASSES), (7, 6)),
    "gru": (lambda: OfRecurrence(nn.GRU(6, 9, batch_first=True), 9, CLASSES), (7, 6)),
    "attention": (lambda: transformer(6), (7, 6)),
    "padded": (lambda: Decoder(pooled=False), (5,)),
    "padded and pooled": (lambda: Decoder(pooled=True), (5,)),
}
WRONG = [float("nan"), float("inf"), 1e38, -1e20, 1e-41, 0.0]


def records(shape, words=0):
    x = torch.randint(0, words, (N, *shape)) if words else torch.randn(N, *shape)
    return x, torch.arange(N) % CLASSES


def compiled(model, x, clip):
    shape = tuple(x.shape[1:])
    return clipped_gradients("compiled", model, Classification(), clip, shape=shape, dtype=x.dtype)


@needs_compiler
@pytest.mark.parametrize("wrong", WRONG)
@pytest.mark.parametrize("name", NETWORKS)
def test_no_bit_of_the_others_depends_on_a_record(name, wrong):
    """Whatever is in it, and although the next record is computed in the same memory."""
    torch.manual_seed(1)
    build, shape = NETWORKS[name]
    model, (x, y) = build(), records(shape)
    theta, total = flatten(model), compiled(model, x, 0.1).compiled
    _, before = total(theta, x, y, NO_KEYS, NO_KEYS, 0.1)
    for place in (..., 0, -1):  # all its numbers, or one
        sick = x.clone()
        sick[SICK].view(-1)[place] = wrong
        whole, norms = total(theta, sick, y, NO_KEYS, NO_KEYS, 0.1)
        others = torch.arange(N) != SICK
        assert torch.equal(norms[others], before[others])
        own, _ = total(theta, sick[SICK : SICK + 1], y[SICK : SICK + 1], NO_KEYS, NO_KEYS, 0.1)
        assert own.norm() <= 0.1 * (1 + 1e-9)
        rest, _ = total(theta, x[others], y[others], NO_KEYS, NO_KEYS, 0.1)
        assert (whole - rest - own).norm() <= 1e-13
        if not norms[SICK].isfinite():
            assert torch.equal(whole, rest)


@needs_compiler
@pytest.mark.parametrize("seed", range(24))
def test_any_network_sums_what_autograd_does(seed):
    torch.manual_seed(seed)
    model, shape = traceable(seed)
    x, y = records(shape)
    rows = exactly_one_by_one(model, x, y, Classification())
    clip = float(rows.norm(dim=1).median()) + 1e-6
    expected = (clip / rows.norm(dim=1).clamp_min(1e-30)).clamp(max=1) @ rows
    gradients = compiled(model, x, clip)
    theta = flatten(model)
    assert (gradients.sum(theta, x, y) - expected).norm() <= 1e-5 * clip * N
    for i in range(N):
        assert gradients.sum(theta, x[i : i + 1], y[i : i + 1]).norm() <= clip * (1 + 1e-9)


@needs_compiler
def test_a_word_that_comes_again_adds_to_its_own_vector():
    torch.manual_seed(1)
    model = transformer(6, words=4)
    x, y = records((9,), words=4)
    x[0] = 2
    rows = exactly_one_by_one(model, x, y, Classification())
    clip = float(rows.norm(dim=1).median())
    expected = (clip / rows.norm(dim=1)).clamp(max=1) @ rows
    gradients = compiled(model, x, clip)
    assert (gradients.sum(flatten(model), x, y) - expected).norm() <= 1e-6 * clip * N
    with pytest.raises(IndexError, match="words from 0 to 4 for a network of 4"):
        gradients.sum(flatten(model), torch.full((N, 9), 4).tril(), y)


@needs_compiler
def test_arrays_of_other_shapes_are_refused():
    model = nn.Sequential(nn.Linear(5, 9), nn.ReLU(), nn.Linear(9, 3))
    x, y = records((5,))
    total, theta = compiled(model, x, 0.1).compiled, flatten(model)
    for wrong, found in (
        ((theta[1:], x, y), r"theta has the shape \(83,\), expected \(84,\)"),
        ((theta, x[:, :4], y), r"x has the shape \(24, 4\), expected \(24, 5\)"),
        ((theta, x, y[:9]), r"y has the shape \(9,\), expected \(24,\)"),
    ):
        with pytest.raises(ValueError, match=found):
            total(*wrong, NO_KEYS, NO_KEYS, 0.1)


@needs_compiler
def test_numbers_near_zero_count_as_zero_and_the_thread_has_its_mode_back():
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(5, 9, bias=False), nn.ReLU(), nn.Linear(9, 3, bias=False))
    x, y = records((5,))
    gradients = compiled(model, x, 0.1)
    assert gradients.sum(flatten(model), 1e-40 * x, y).count_nonzero() == 0
    small = np.full(3, 1e-40, dtype=np.float32)
    assert (small * np.float32(1) == small).all()
    assert torch.full((3,), 1e-40).mul(1.0).count_nonzero() == 3


@needs_compiler
@pytest.mark.parametrize("pooled", [False, True])
def test_no_number_of_fresh_memory_is_read(pooled, monkeypatch):
    torch.manual_seed(1)
    model, (x, y) = Decoder(pooled), records((5,))
    gradients = compiled(model, x, 0.1)
    found = []
    for byte in (0, 255):
        monkeypatch.setattr(np, "empty", lambda n, dtype=float, byte=byte: filled(n, dtype, byte))
        found.append(gradients.sum(flatten(model), x, y))
        monkeypatch.undo()
    assert torch.equal(*found)


def filled(n, dtype, byte):
    array = np.zeros(n, dtype)
    array.view(np.uint8).fill(byte)
    return array
