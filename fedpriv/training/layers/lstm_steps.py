"""LSTM layers step by step, in operations that vmap computes for many users at once.

torch's own kernel for LSTM layers knows nothing of vmap, which then calls it user by user.
"""

from __future__ import annotations

import copy
from types import MethodType
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from fedpriv.training.cached_by_model import cached_by_model
from fedpriv.training.untouched import torch_is_untouched

_TORCHS_FORWARD = nn.LSTM.forward


@cached_by_model
def stepwise(model: nn.Module) -> nn.Module:
    """A copy of the network whose LSTM layers compute step by step what torch's do. It shares its
    parameters and buffers with the network.

    The layers keep their type: a network's code may ask for it.
    """
    tensors = (*model.parameters(), *model.buffers())
    own = copy.deepcopy(model, {id(each): each for each in tensors})
    for layer in own.modules():
        if _can_be_replaced(layer):
            vars(layer)["forward"] = MethodType(_forward, layer)
    return own


def is_stepwise(layer: nn.Module) -> bool:
    """Whether the layer computes step by step."""
    return getattr(layer.forward, "__func__", None) is _forward


def _can_be_replaced(layer: nn.Module) -> bool:
    """Whether it is torch's own LSTM in one direction, without dropout and projections."""
    if type(layer) is not nn.LSTM or "forward" in vars(layer):
        return False
    if nn.LSTM.forward is not _TORCHS_FORWARD or not torch_is_untouched():
        return False
    return not (layer.bidirectional or layer.dropout or layer.proj_size)


def _forward(self: nn.LSTM, input: Any, hx: Any = None) -> Any:  # noqa: A002 torch's name
    """Sequences of a batch are computed here, all else by torch."""
    if hx is not None or not isinstance(input, Tensor) or input.dim() != 3:
        return nn.LSTM.forward(self, input, hx)
    x = input.transpose(0, 1) if self.batch_first else input
    last = []
    for layer in range(self.num_layers):
        x, *memory = _layer(self, x, layer)
        last.append(memory)
    h, c = (torch.stack(each) for each in zip(*last))
    return (x.transpose(0, 1) if self.batch_first else x), (h, c)


def _layer(cell: nn.LSTM, x: Tensor, layer: int) -> tuple[Tensor, Tensor, Tensor]:
    """A layer's states (steps, b, h), and what it remembers at last, (b, h) each."""
    offset = None
    if cell.bias:
        offset = getattr(cell, f"bias_ih_l{layer}") + getattr(cell, f"bias_hh_l{layer}")
    inputs = functional.linear(x, getattr(cell, f"weight_ih_l{layer}"), offset)
    weight = getattr(cell, f"weight_hh_l{layer}")
    h = c = x.new_zeros((x.shape[1], cell.hidden_size))
    states = []
    for step in inputs.unbind(0):
        gates = step + functional.linear(h, weight)
        enter, keep, new, leave = gates.chunk(4, -1)
        c = torch.sigmoid(keep) * c + torch.sigmoid(enter) * torch.tanh(new)
        h = torch.sigmoid(leave) * torch.tanh(c)
        states.append(h)
    return torch.stack(states), h, c
