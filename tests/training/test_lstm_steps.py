"""LSTM layers step by step beside torch's own."""

import warnings

import pytest
import torch
from torch import nn
from torch.func import grad, vmap
from torch.nn.utils.rnn import pack_sequence

from fedpriv.training.layers.lstm_steps import is_stepwise, stepwise
from fedpriv.training.vectors import call, flatten, unflatten

SETTINGS = [{}, {"num_layers": 3}, {"bias": False}, {"batch_first": True, "num_layers": 2}]


class Own(nn.Module):
    def __init__(self, **settings):
        super().__init__()
        self.cell = nn.LSTM(4, 5, **settings)
        self.other = nn.Linear(5, 2)

    def forward(self, x):
        states, (h, c) = self.cell(x)
        return self.other(states).sum() + (h * h).sum() + (c * c * c).sum()


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_outputs_and_gradients_are_torchs(settings):
    torch.manual_seed(0)
    model = Own(**settings).double()
    own = stepwise(model)
    assert own is not model
    assert is_stepwise(own.cell)
    assert not is_stepwise(model.cell)
    x = torch.randn(3, 7, 4, dtype=torch.float64)
    for one, other in zip(model.cell(x)[1], own.cell(x)[1]):
        torch.testing.assert_close(one, other, rtol=1e-12, atol=1e-14)
    want = torch.autograd.grad(model(x), [*model.parameters()])
    got = torch.autograd.grad(own(x), [*own.parameters()])
    for one, other in zip(got, want, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-13)


@pytest.fixture
def fallbacks():
    """torch warns of every kernel that vmap calls user by user."""
    torch._C._debug_only_display_vmap_fallback_warnings(True)
    yield "performance drop"
    torch._C._debug_only_display_vmap_fallback_warnings(False)


def test_vmap_knows_every_operation(fallbacks):
    torch.manual_seed(0)
    model = Own()
    own = stepwise(model)
    vectors = torch.stack([flatten(own) * factor for factor in (1.0, 0.5, -2.0)])
    x = torch.randn(3, 6, 2, 4)

    def gradients(model):
        return vmap(grad(lambda v, x: call(model, unflatten(model, v), x)))(vectors, x)

    with pytest.warns(UserWarning, match=fallbacks):
        gradients(model)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = gradients(own)
    for vector, each, change in zip(vectors, x, found):
        alone = grad(lambda v, x=each: call(own, unflatten(own, v), x))(vector)
        torch.testing.assert_close(change, alone, rtol=1e-4, atol=1e-6)


def test_what_it_does_not_compute_is_left_to_torch():
    torch.manual_seed(0)
    model = Own()
    own = stepwise(model)
    packed = pack_sequence([torch.randn(4, 4), torch.randn(2, 4)])
    assert torch.equal(own.cell(packed)[0].data, model.cell(packed)[0].data)
    alone = torch.randn(7, 4)
    assert torch.equal(own.cell(alone)[0], model.cell(alone)[0])
    x, memory = torch.randn(3, 2, 4), (torch.randn(1, 2, 5), torch.randn(1, 2, 5))
    assert torch.equal(own.cell(x, memory)[0], model.cell(x, memory)[0])


@pytest.mark.parametrize(
    "settings",
    [{"bidirectional": True}, {"num_layers": 2, "dropout": 0.5}, {"proj_size": 2}],
    ids=str,
)
def test_other_layers_are_not_replaced(settings):
    own = stepwise(nn.Sequential(nn.LSTM(4, 5, **settings), nn.GRU(4, 5)))
    assert not any(map(is_stepwise, own))


def test_a_patched_layer_is_not_replaced(monkeypatch):
    monkeypatch.setattr(nn.LSTM, "forward", lambda self, x: x)
    assert not any(map(is_stepwise, stepwise(nn.Sequential(nn.LSTM(4, 5)))))
