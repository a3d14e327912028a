"""A network with the weights that a run has released."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from fedpriv.errors import FedprivError
from fedpriv.models import Model
from fedpriv.util.untrusted_files import read_bytes

if TYPE_CHECKING:
    from torch import nn

MOST_BYTES = 2**30


@dataclass(frozen=True)
class Released(Model):
    """A network that starts at weights in a file.

    whole: the network.
    weights: safetensors file with its parameters by name.
    digest: SHA-256 of the file.
    """

    whole: Model
    weights: Path
    digest: str

    def build(self, shape: tuple[int, ...], outputs: int) -> nn.Module:
        import torch
        from safetensors import SafetensorError
        from safetensors.torch import load

        network = self.whole.build(shape, outputs)
        try:
            content = read_bytes(self.weights, MOST_BYTES)
            if hashlib.sha256(content).hexdigest() != self.digest:
                raise ValueError("it has changed since the evaluation began")
            tensors = load(content)
        except (SafetensorError, ValueError, OSError) as error:
            raise FedprivError(f"{self.weights}: {error}") from error
        own = dict(network.named_parameters())
        shapes = {name: tuple(one.shape) for name, one in own.items()}
        if shapes != {name: tuple(one.shape) for name, one in tensors.items()}:
            raise FedprivError(f"{self.weights}: its tensors are not those of the network")
        if not all(bool(one.isfinite().all()) for one in tensors.values()):
            raise FedprivError(f"{self.weights}: a weight is not finite")
        with torch.no_grad():
            for name, one in own.items():
                one.copy_(tensors[name])
        return network

    def size(self, shape: tuple[int, ...], outputs: int) -> int:
        return self.whole.size(shape, outputs)

    @property
    def reads_text(self) -> bool:
        return self.whole.reads_text

    @property
    def mixes_records(self) -> bool:
        return self.whole.mixes_records
