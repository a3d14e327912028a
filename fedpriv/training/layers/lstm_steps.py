"""LSTM layers step by step, in operations that vmap computes for many users at once.

torch's own kernel for LSTM layers knows nothing of vmap, which then calls it user by user.
"""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from fedpriv.training.cached_by_model import cached_by_model


class StepwiseLSTM(nn.LSTM):
    """The same layer. Sequences of a batch are computed here, all else by torch."""

    def forward(self, input: Any, hx: Any = None) -> Any:  # noqa: A002 torch's name
        if hx is not None or not isinstance(input, Tensor) or input.dim() != 3:
            return super().forward(input, hx)
        x = input.transpose(0, 1) if self.batch_first else input
        last = []
        for layer in range(self.num_layers):
            x, *memory = self._layer(x, layer)
            last.append(memory)
        h, c = (torch.stack(each) for each in zip(*last))
        return (x.transpose(0, 1) if self.batch_first else x), (h, c)

    def _layer(self, x: Tensor, layer: int) -> tuple[Tensor, Tensor, Tensor]:
        """Its states (steps, b, h), and what it remembers at last, (b, h) each."""
        offset = None
        if self.bias:
            offset = getattr(self, f"bias_ih_l{layer}") + getattr(self, f"bias_hh_l{layer}")
        inputs = functional.linear(x, getattr(self, f"weight_ih_l{layer}"), offset)
        weight = getattr(self, f"weight_hh_l{layer}")
        h = c = x.new_zeros((x.shape[1], self.hidden_size))
        states = []
        for step in inputs.unbind(0):
            gates = step + functional.linear(h, weight)
            enter, keep, new, leave = gates.chunk(4, -1)
            c = torch.sigmoid(keep) * c + torch.sigmoid(enter) * torch.tanh(new)
            h = torch.sigmoid(leave) * torch.tanh(c)
            states.append(h)
        return torch.stack(states), h, c


def stepwise(model: nn.Module) -> nn.Module:
    """The network with `StepwiseLSTM` layers in place of torch's, as a copy; or the network itself
    if it has no layer that they can replace."""
    return _stepwise(model) if any(map(_can_be_replaced, model.modules())) else model


@cached_by_model
def _stepwise(model: nn.Module) -> nn.Module:
    own = copy.deepcopy(model)
    for layer in own.modules():
        if _can_be_replaced(layer):
            layer.__class__ = StepwiseLSTM
    return own


def _can_be_replaced(layer: nn.Module) -> bool:
    """Whether it is torch's own LSTM in one direction, without dropout and projections."""
    if type(layer) is not nn.LSTM or "forward" in vars(layer):
        return False
    return not (layer.bidirectional or layer.dropout or layer.proj_size)
