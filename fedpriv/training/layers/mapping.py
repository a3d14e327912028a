"""Which networks are described by the table of layers."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from fedpriv.training.graph import Uncaptured, captured, difference, inputs
from fedpriv.training.layers.chain import LayerChain, chain_of
from fedpriv.training.layers.traced import UnmappedError, read_calls
from fedpriv.training.per_network import once_per_network


@dataclass(frozen=True)
class Unmapped:
    """A network that no table of layers describes.

    reason: why, as the end of a sentence.
    """

    reason: str


class _AsNetwork(nn.Module):
    """A chain as a network, with the parameters of the one that it describes."""

    def __init__(self, network: nn.Module, chain: LayerChain) -> None:
        super().__init__()
        self.network = network
        self.chain = chain

    def forward(self, x: Tensor) -> Tensor:
        return self.chain.run(x)


@once_per_network
def mapped(
    model: nn.Module, shape: tuple[int, ...], dtype: torch.dtype = torch.float32
) -> LayerChain | Unmapped:
    """The chain of a network on records of `shape`, or why there is none. In training it has the
    outputs and gradients of the network's graph."""
    network = captured(model, shape, dtype)
    if isinstance(network, Uncaptured):
        return Unmapped(network.reason)
    try:
        calls = read_calls(network, shape, dtype)
        chain = chain_of(network, shape, dtype, calls)
        made_up = inputs(network, shape, dtype)
        found = difference(network, _AsNetwork(network, chain), made_up, modes=(True,))
    except UnmappedError as error:
        return Unmapped(str(error))
    return Unmapped(found) if found else chain
