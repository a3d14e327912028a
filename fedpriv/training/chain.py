"""Chains of linear layers with many sets of parameters at once: the same network in every run of a sweep."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from itertools import pairwise
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn
from torch.nn.functional import linear

from fedpriv.models.l2_projection import L2Projection
from fedpriv.training.trainers.compile_layers import compile_layers

BETWEEN = (nn.ReLU, nn.Flatten, L2Projection)
"""Layers without parameters that draw nothing, take each row by itself and keep what they read."""

SMALL = 400
"""Multiply-adds below which torch makes batched products by loops of its own, and not by the library's."""


@dataclass(frozen=True)
class Chain:
    """The layers in the order of their calls. name: equal for networks that compute the same from equal parameters."""

    layers: tuple[nn.Module, ...]
    name: Hashable

    @staticmethod
    def of(model: nn.Module, shape: tuple[int, ...]) -> Chain | None:
        """That of a network on records of `shape`, kept for the next call; None for one that is anything else."""
        if not any(model.children()):
            return None  # it would keep itself alive
        known = _chains.setdefault(model, {})
        if shape not in known:
            known[shape] = Chain._of(model, shape)
        return known[shape]

    @staticmethod
    def _of(model: nn.Module, shape: tuple[int, ...]) -> Chain | None:
        links = compile_layers(model, shape)
        if links is None:
            return None
        layers = tuple(link.module for link in links)
        known = all(type(layer) is nn.Linear or _leaves_alone(layer) for layer in layers)
        return Chain(layers, (shape, *(link.name for link in links))) if known else None

    def forward(self, thetas: Tensor, x: Tensor) -> tuple[list[Tensor], list[Tensor]]:
        """What each linear layer reads and writes, (k, b, features) each; the last one's output is the network's,
        unless other layers come after it.

        thetas: (k, d). x: (k, b, ...). A product of matrices is made for all k at once, which gives the bits of k
        single ones; only small ones would take another kernel, and are made one by one.
        """
        k, b = x.shape[:2]
        inputs: list[Tensor] = []
        outputs: list[Tensor] = []
        h, start = x.flatten(0, 1), 0
        for layer in self.layers:
            if not isinstance(layer, nn.Linear):
                h = layer(h)
                continue
            biased = layer.bias is not None
            sizes = (layer.weight.numel(), layer.out_features if biased else 0)
            cuts = [start, start + sizes[0], start + sum(sizes)]
            weight, bias = (thetas[:, low:high] for low, high in pairwise(cuts))
            rows, weight = h.view(k, b, -1), weight.reshape(k, *layer.weight.shape)
            if b * layer.weight.numel() < SMALL:
                offsets = bias.unbind() if biased else [None] * k
                written = torch.stack([linear(*own) for own in zip(rows.unbind(), weight.unbind(), offsets)])
            elif biased:
                written = torch.baddbmm(bias.unsqueeze(1), rows, weight.transpose(1, 2))
            else:
                written = torch.bmm(rows, weight.transpose(1, 2))
            inputs.append(rows.detach())
            outputs.append(written if written.requires_grad else written.requires_grad_(torch.is_grad_enabled()))
            h, start = outputs[-1].flatten(0, 1), cuts[-1]
        return inputs, outputs


_chains: WeakKeyDictionary[nn.Module, dict[tuple[int, ...], Chain | None]] = WeakKeyDictionary()


def products(left: Tensor, right: Tensor) -> Tensor:
    """(k, m, n): the products of (k, m, b) and (k, b, n), with the bits of single ones."""
    if left[0].numel() * right.shape[2] < SMALL:
        return torch.stack([one @ other for one, other in zip(left.unbind(), right.unbind())])
    return torch.bmm(left, right)


def _leaves_alone(layer: nn.Module) -> bool:
    return type(layer) in BETWEEN and not getattr(layer, "inplace", False)
