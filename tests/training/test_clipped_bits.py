"""No bit of a record's clipped gradient depends on the batch that it is in, nor on threads."""

import pytest
import torch
from clipped_problems import OTHERS, PROBLEMS, WAYS, clipped_gradients, problem

from fedpriv.training.clipped import ClippedGradients
from fedpriv.training.per_record import RecordGradients
from fedpriv.training.trainers.compiled.library import library
from fedpriv.training.vectors import flatten

LENGTHS = [1, 2, 3, 4, 9, 12, 15, 16, 17, 31, 32, 33, 63, 64, 65, 97, 160]


@pytest.fixture(params=[1, 2])
def threads(request):
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield
    torch.set_num_threads(before)


@pytest.mark.usefixtures("threads")
@pytest.mark.parametrize("name", [*PROBLEMS, *OTHERS])
def test_a_gradient_has_the_same_bits_in_a_batch_of_any_length(name):
    """So that a record that is absent changes no gradient of another."""
    model, x, y, task = problem(name, max(LENGTHS))
    theta = flatten(model) + 0.1
    gradients = RecordGradients(model, task, 1, tuple(x.shape[1:]), x.dtype)
    x, y = x.unsqueeze(1), y.unsqueeze(1)
    whole = gradients(theta, x, y, {})
    for n in LENGTHS:
        for first in (0, n // 2):
            assert torch.equal(gradients(theta, x[first:n], y[first:n], {}), whole[first:n])


@pytest.mark.usefixtures("threads")
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", [*PROBLEMS, "layer norm", "one pixel"])
def test_a_clipped_gradient_has_the_same_bits_alone_and_among_zeros(name, way):
    """Records whose clip is 0 in float64 add exact zeros: what remains is one gradient."""
    model, x, y, task = problem(name, 40)
    theta = flatten(model) + 0.1
    given = {"shape": tuple(x.shape[1:]), "dtype": x.dtype}
    gradients = clipped_gradients(way, model, task, 1.0, **given)
    alone = gradients.sum(theta, x[7:8], y[7:8])
    if not x.is_floating_point():
        return
    others = torch.full_like(x, torch.nan)  # which count as zero
    others[7] = x[7]
    assert torch.equal(gradients.sum(theta, others, y), alone)


@pytest.mark.skipif(library() is None, reason="needs a C++ compiler")
def test_threads_change_no_bit_of_a_compiled_sum():
    model, x, y, task = problem("lstm", 300)
    gradients = ClippedGradients(model, task, 0.1, shape=tuple(x.shape[1:]))
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
