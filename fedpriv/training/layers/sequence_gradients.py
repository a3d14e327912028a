"""Norms and clipped sums of per-record gradients of layers on sequences (b, steps, features), whose
parameters all steps share. See `own_gradients`.

A record has the same bits in a batch of any length, as far as kernels allow: each product of
matrices has the rows of one record, or many rows at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from fedpriv.training.layers.own_gradients import (
    NUMBERS_AT_ONCE,
    FormedPass,
    LinearPass,
    Pass,
    record_products,
    tracked,
)
from fedpriv.training.layers.parts import AddedParameter, Recurrence, SelfAttention


@dataclass(frozen=True)
class Projection:
    """What a linear layer is, where another layer has its parameters."""

    weight: Tensor
    bias: Tensor | None

    @property
    def in_features(self) -> int:
        return self.weight.shape[1]

    @property
    def out_features(self) -> int:
        return self.weight.shape[0]


class StepsLinearPass(FormedPass):
    """A linear layer on every step."""

    def __init__(
        self, layer: nn.Linear | Projection, parameters: Sequence[Tensor], h: Tensor
    ) -> None:
        self.read = h.detach()
        self.biased = layer.bias is not None
        rows = LinearPass(layer, parameters, h.flatten(0, 1))
        self.written = tracked(rows.written.view(*h.shape[:2], -1))

    def formed(self, gradient: Tensor) -> list[Tensor]:
        weight = record_products(gradient.transpose(1, 2), self.read).flatten(1)
        return [weight, gradient.sum(1)] if self.biased else [weight]


def linear_pass(layer: nn.Linear, parameters: Sequence[Tensor], h: Tensor) -> Pass:
    """The pass of a linear layer on rows or on steps."""
    return (StepsLinearPass if h.dim() == 3 else LinearPass)(layer, parameters, h)


class LayerNormPass(FormedPass):
    """LayerNorm with its scale and offset, on rows (b, features) or steps."""

    def __init__(self, layer: nn.LayerNorm, parameters: Sequence[Tensor], h: Tensor) -> None:
        normal = functional.layer_norm(h, layer.normalized_shape, eps=layer.eps)
        scale, offset = (own.flatten() for own in parameters)
        self.normal = normal.detach()
        self.written = tracked(normal * scale + offset)

    def formed(self, gradient: Tensor) -> list[Tensor]:
        both = gradient * self.normal, gradient
        return [own.sum(1) if own.dim() == 3 else own for own in both]


class AddedParameterPass(FormedPass):
    """A parameter that is added to every record: its gradient is the record's own."""

    def __init__(self, layer: AddedParameter, parameters: Sequence[Tensor], h: Tensor) -> None:
        self.written = tracked(h + parameters[0].view(layer.own.shape))

    def formed(self, gradient: Tensor) -> list[Tensor]:
        return [gradient.flatten(1)]


class EmbeddingPass(Pass):
    """Rows of a table. A record's gradient is zero but for the words that it has, and adds the
    gradients of all steps with the same word; so it is never formed."""

    def __init__(self, layer: nn.Embedding, parameters: Sequence[Tensor], h: Tensor) -> None:
        self.read = h
        self.table = layer.weight.shape
        self.written = tracked(functional.embedding(h, parameters[0].view(self.table)))

    def squares(self, *gradients: Tensor) -> Tensor:
        self.g = gradients[0].double()
        same = (self.read.unsqueeze(2) == self.read.unsqueeze(1)).double()
        words = record_products(same, self.g)  # a word's sum, once for each step that has it
        squares: Tensor = (words.square().sum(2) / same.sum(2)).sum(1)
        return squares.unsqueeze(0)

    def sums(self, factors: Tensor) -> list[Tensor]:
        own = factors.view(-1, 1, 1)
        rows = torch.where(own > 0, self.g * own, 0.0)
        total = rows.new_zeros(self.table)
        return [total.index_add_(0, self.read.flatten(), rows.flatten(0, 1)).view(1, -1)]


class SelfAttentionPass(Pass):
    """Projections to queries, keys and values, attention, and a projection of what it finds."""

    def __init__(self, layer: SelfAttention, parameters: Sequence[Tensor], h: Tensor) -> None:
        own = layer.attention
        first = Projection(own.in_proj_weight, own.in_proj_bias)
        last = Projection(own.out_proj.weight, own.out_proj.bias)
        self.into = StepsLinearPass(first, parameters[:2], h)
        all_parts = _with_zeros(self.into.written, int(len(h) == 1))  # threads would share one
        queries, keys, values = (
            part.view(*part.shape[:2], own.num_heads, -1).transpose(1, 2)
            for part in all_parts.chunk(3, 2)
        )
        found = functional.scaled_dot_product_attention(queries, keys, values)
        rows = found.transpose(1, 2).flatten(2)[: len(h)]
        self.out = StepsLinearPass(last, parameters[2:], rows)
        self.written = self.out.written

    @property
    def watched(self) -> list[Tensor]:
        return [self.into.written, self.out.written]

    def squares(self, *gradients: Tensor) -> Tensor:
        into, out = gradients
        return self.into.squares(into) + self.out.squares(out)

    def sums(self, factors: Tensor) -> list[Tensor]:
        return self.into.sums(factors) + self.out.sums(factors)


class RecurrencePass(FormedPass):
    """A recurrent layer of torch, step by step. What the steps' inputs add to the gates is one
    linear layer on all steps, and its gradient that of the gates. Records of zeros fill whole
    vectors, so that no record's gates are computed by other code."""

    def __init__(self, layer: Recurrence, parameters: Sequence[Tensor], h: Tensor) -> None:
        cell: Any = layer.cell
        self.biased = bool(cell.bias)
        self.n = len(h)
        self.hidden = cell.hidden_size
        into = Projection(cell.weight_ih_l0, cell.bias_ih_l0 if self.biased else None)
        self.gates = StepsLinearPass(into, parameters[::2] if self.biased else parameters[:1], h)
        gates = _with_zeros(self.gates.written, -self.n % NUMBERS_AT_ONCE)
        weight = parameters[1].view(cell.weight_hh_l0.shape)
        bias = parameters[3].flatten() if self.biased else None
        state = gates.new_zeros((len(gates), self.hidden))
        self.resets: list[Tensor] = []
        states = [state]
        memory = state
        for own in gates.unbind(1):
            repeated = functional.linear(states[-1], weight, bias)
            if isinstance(cell, nn.LSTM):
                state, memory = _lstm(own + repeated, memory)
            else:
                state, reset = _gru(own, repeated, states[-1])
                self.resets.append(reset.detach()[: self.n])
            states.append(state)
        self.before = torch.stack(states[:-1], 1).detach()[: self.n]
        self.written = torch.stack(states[1:], 1)[: self.n]

    @property
    def watched(self) -> list[Tensor]:
        return [self.gates.written]

    def formed(self, gradient: Tensor) -> list[Tensor]:
        weight, *bias = self.gates.formed(gradient)
        if self.resets:
            kept, new = torch.split(gradient, [2 * self.hidden, self.hidden], 2)
            gradient = torch.cat([kept, new * torch.stack(self.resets, 1)], 2)
        repeated = record_products(gradient.transpose(1, 2), self.before).flatten(1)
        return [weight, repeated, *bias, gradient.sum(1)] if self.biased else [weight, repeated]


def _with_zeros(h: Tensor, more: int) -> Tensor:
    """(b, steps, features) with so many records of zeros."""
    return functional.pad(h, (0, 0, 0, 0, 0, more)) if more else h


def _lstm(gates: Tensor, memory: Tensor) -> tuple[Tensor, Tensor]:
    """A step's state and memory."""
    take, keep, new, show = gates.chunk(4, 1)
    memory = keep.sigmoid() * memory + take.sigmoid() * new.tanh()
    return show.sigmoid() * memory.tanh(), memory


def _gru(own: Tensor, repeated: Tensor, before: Tensor) -> tuple[Tensor, Tensor]:
    """A step's state and reset gate."""
    reset, keep, new = own.chunk(3, 1)
    resets, keeps, news = repeated.chunk(3, 1)
    reset = (reset + resets).sigmoid()
    keep = (keep + keeps).sigmoid()
    new = (new + reset * news).tanh()
    return (1 - keep) * new + keep * before, reset
