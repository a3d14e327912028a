"""No bit of a record's clipped gradient depends on the batch that it is in, nor on threads."""

import pytest
import torch
from clipped_problems import OTHERS, PROBLEMS, WAYS, class_of, problem
from compiled_sums import without_compiler

from fedpriv.training import clipped as module
from fedpriv.training.clipped import clipped_gradients
from fedpriv.training.trainers.compiled.library import library
from fedpriv.training.vectors import flatten

LENGTHS = [1, 2, 3, 4, 9, 12, 15, 16, 17, 31, 32, 33, 63, 64, 65, 97, 160]


@pytest.fixture(params=WAYS)
def way(request, monkeypatch):
    return class_of(request.param, monkeypatch)


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("name", [*PROBLEMS, *OTHERS])
def test_a_gradient_has_the_same_bits_in_a_batch_of_any_length(name, threads, way, monkeypatch):
    """So that a record that is absent changes no gradient of another."""
    model, x, y, task = problem(name, max(LENGTHS))
    theta = flatten(model) + 0.1
    gradients = clipped_gradients(model, task, 1.0, shape=tuple(x.shape[1:]), dtype=x.dtype)
    norms = []
    found = []
    noted = "finite_norms" if isinstance(gradients, module._Compiled) else "clip_factors"
    original = getattr(module, noted)
    monkeypatch.setattr(
        module, noted, lambda own, *more: (found.append(own), original(own, *more))[1]
    )
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        for n in LENGTHS:
            for first in (0, n // 2):
                found.clear()
                gradients.sum(theta, x[first:n], y[first:n])
                norms.append(torch.cat(found))
    finally:
        torch.set_num_threads(before)
    whole = norms[-2]
    parts = iter(norms)
    for n in LENGTHS:
        for first in (0, n // 2):
            # float64 norms of float32 gradients: bits that differed would show from 1e-8 on
            far = 0.0 if isinstance(gradients, module._Compiled) else 1e-13
            torch.testing.assert_close(next(parts), whole[first:n], rtol=far, atol=0.0)


@pytest.mark.skipif(library() is None, reason="needs a C++ compiler")
def test_threads_change_no_bit_of_a_compiled_sum(monkeypatch):
    monkeypatch.setattr(module, "WORTH_THREADS", 1)
    model, x, y, task = problem("lstm", 300)
    gradients = clipped_gradients(model, task, 0.1, shape=tuple(x.shape[1:]))
    before = torch.get_num_threads()
    found = []
    try:
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            found.append(gradients.sum(flatten(model), x, y))
    finally:
        torch.set_num_threads(before)
    assert torch.equal(found[0], found[1])
    assert torch.equal(found[0], found[2])


def test_small_sums_have_one_thread_and_large_ones_all(monkeypatch):
    """Waking a second thread for each kernel of a small step made DP-SGD three times slower. Where
    no bit may depend on other records there is one always: two share a product's sums, and of 149
    networks 21 rounded otherwise in batches of other lengths."""
    without_compiler(monkeypatch)
    model, x, y, task = problem(next(iter(PROBLEMS)), 160)
    gradients = clipped_gradients(model, task, 1.0, shape=tuple(x.shape[1:]))
    sums = gradients.sums

    def threads(least: int, *, runs: int = 1, alone: bool = False) -> set[int]:
        """How many threads sums have when `least` numbers are worth all of them."""
        seen = set()

        def watched(parts):
            seen.add(torch.get_num_threads())
            return sums(parts)

        with monkeypatch.context() as patch:
            patch.setattr(module, "WORTH_THREADS", least)
            patch.setattr(gradients, "sums", watched)
            asked = [
                gradients.asked(flatten(model), x[:4], y[:4], alone=alone) for _ in range(runs)
            ]
            asked[0].run() if runs == 1 else asked[0].run_batch(asked)
        return seen

    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        assert threads(2**17) == threads(2**17, runs=2) == {1}
        assert threads(1) == threads(1, runs=2) == {2}
        assert threads(1, alone=True) == threads(1, runs=2, alone=True) == {1}
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)
