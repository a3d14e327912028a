"""The sum of a batch's clipped per-record gradients, beside Opacus: same network, records and clip.

`ghost` is Opacus' GradSampleModuleFastGradientClipping: norms by hooks, then a second backward
pass. `vectorised` is its GradSampleModule, a gradient per record by hooks, and `functorch` the same
by torch.func. Recurrent layers and attention are replaced by Opacus' own. All programs take
alternating turns in one process on one core. The ratio is that of the fastest Opacus program's
processor seconds to fedpriv's. The sums are compared first, without dropout, because each program
draws its own masks.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks._fresh_process import in_fresh_process
from benchmarks._ratios import alternating_turns, ratio

if TYPE_CHECKING:
    from torch import Tensor, nn

TURNS = 15
GOAL = 1.2
CLIP = 1.0
ROWS = 606
WORDS = 50


@dataclass(frozen=True)
class Case:
    """A network and its records.

    name: the network's name.
    shape: shape of a record.
    outputs: number of outputs.
    words: whether records are words.
    """

    name: str
    shape: tuple[int, ...]
    outputs: int
    words: bool = False

    def build(self, dropout: float) -> nn.Module:
        """The network with this dropout, if it has any."""
        from torch import nn

        from benchmarks.own_networks import OwnCnn, OwnRecurrent, OwnTransformer, ResidualMlp
        from fedpriv.models.cnn import CifarCnn, MnistCnn
        from fedpriv.models.mlp import Mlp

        match self.name:
            case "odd/even MLP":
                return Mlp([64], False, 0.0).build(self.shape, self.outputs)
            case "MNIST CNN":
                return MnistCnn([10, 20], 50, dropout).build(self.shape, self.outputs)
            case "CIFAR CNN":
                return CifarCnn([6, 16], [120, 84]).build(self.shape, self.outputs)
            case "own CNN":
                return OwnCnn()
            case "residual MLP":
                return ResidualMlp()
            case "LSTM":
                return OwnRecurrent(nn.LSTM, *self.shape[1:], 32, 1)
            case "GRU":
                return OwnRecurrent(nn.GRU, *self.shape[1:], 32, 1)
        return OwnTransformer(32, *self.shape, placed=False)


CASES = [
    Case("odd/even MLP", (50,), 2),
    Case("MNIST CNN", (1, 28, 28), 10),
    Case("CIFAR CNN", (3, 32, 32), 10),
    Case("own CNN", (1, 28, 28), 10),
    Case("residual MLP", (30,), 10),
    Case("LSTM", (20, 8), 10),
    Case("GRU", (20, 8), 10),
    Case("transformer", (20,), 10, words=True),
]
OURS = "fedpriv"
BY_TORCH = "without a compiler"


def main() -> None:
    """Run every case in its own process, and print a table."""
    print(f"{ROWS} records, processor milliseconds of a sum, median of {TURNS} turns")
    for case in CASES:
        times = in_fresh_process(measure, case)
        opacus = [name for name in times if name not in (OURS, BY_TORCH)]
        best = min(opacus, key=lambda name: float(np.median(times[name])))
        shown = "  ".join(
            f"{name} {1e3 * float(np.median(spent)):8.1f}" for name, spent in times.items()
        )
        print(
            f"{case.name:>14}  {shown}  {ratio(times[OURS], times[best])}  goal {GOAL}; "
            f"{BY_TORCH} {ratio(times[BY_TORCH], times[best])}",
            flush=True,
        )


def measure(case: Case) -> dict[str, list[float]]:
    """Processor seconds of every turn."""
    import torch

    warnings.filterwarnings("ignore", message="Full backward hook is firing")  # Opacus' own hooks
    torch.set_num_threads(1)
    torch.manual_seed(0)
    x = torch.randint(0, WORDS, (ROWS, *case.shape)) if case.words else None
    x = torch.randn(ROWS, *case.shape) if x is None else x
    y = torch.randint(0, case.outputs, (ROWS,))
    _agree(programs(case.build(0.0), x, y))
    return alternating_turns(programs(case.build(0.5), x, y), TURNS, warm_up=2)


def programs(network: nn.Module, x: Tensor, y: Tensor) -> dict[str, Callable[[], Tensor]]:
    """Programs that return the sum (d,) of clipped gradients, by name."""
    from opacus.grad_sample import GradSampleModule

    how: dict[str, Any] = {"loss_reduction": "sum"}
    vectorised = GradSampleModule(_for_opacus(network), **how)
    functorch = GradSampleModule(_for_opacus(network), **how, force_functorch=True)
    return {
        OURS: _ours(network, x, y),
        BY_TORCH: _ours(network, x, y, compiled=False),
        "ghost": _ghost(network, x, y),
        "vectorised": lambda: _clipped(network, vectorised, x, y),
        "functorch": lambda: _clipped(network, functorch, x, y),
    }


def _for_opacus(network: nn.Module) -> nn.Module:
    """A copy with Opacus' layers in the place of those that it does not support.

    Its attention has other outputs than torch's if batches come first and there are several heads
    (version 1.6). Here its layers compute the queries, keys and values, and torch the rest.
    """
    from opacus.layers import DPMultiheadAttention
    from opacus.validators import ModuleValidator
    from torch.nn import functional

    class Attention(DPMultiheadAttention):  # type: ignore[misc]
        def forward(
            self, query: Tensor, key: Tensor, value: Tensor, **_: object
        ) -> tuple[Tensor, None]:
            parts = self.qlinear(query), self.klinear(key), self.vlinear(value)
            heads = (own.unflatten(2, (self.num_heads, -1)).transpose(1, 2) for own in parts)
            found = functional.scaled_dot_product_attention(*heads)
            return self.out_proj(found.transpose(1, 2).flatten(2)), None

    own = ModuleValidator.fix(network)
    for part in own.modules():
        if type(part) is DPMultiheadAttention:
            part.__class__ = Attention
    return own


def _in_order(network: nn.Module, own: nn.Module, gradients: Iterator[Tensor]) -> Tensor:
    """The gradients of the parameters of `own`, in the order of `network`'s."""
    import torch

    named = dict(zip((name for name, _ in own.named_parameters()), gradients, strict=True))
    found = []
    for name, _ in network.named_parameters():
        before, several, kind = name.rpartition("in_proj_")
        parts = [f"{before}{which}linear.{kind}" for which in "qkv"] if several else [name]
        found += [named[part].flatten() for part in parts]
    return torch.cat(found)


def _agree(sums: dict[str, Callable[[], Tensor]]) -> None:
    """Raise ValueError if two programs give different sums."""
    ours = sums[OURS]()
    for name, program in sums.items():
        differs = float((program().double() - ours).norm() / ours.norm())
        if differs > 1e-4:  # Opacus divides by the norm plus 1e-6, in float32
            raise ValueError(f"{name} differs from {OURS} by {differs:.1e}")


def _ours(
    network: nn.Module, x: Tensor, y: Tensor, *, compiled: bool = True
) -> Callable[[], Tensor]:
    from fedpriv.models.tasks import Classification
    from fedpriv.training.clipped import ClippedGradients
    from fedpriv.training.contributions import ContributionStats
    from fedpriv.training.vectors import flatten

    keys = np.arange(len(x), dtype=np.uint64)
    gradients = ClippedGradients(network, Classification(), CLIP, shape=tuple(x.shape[1:]))
    if not compiled:
        gradients.compiled = None
    theta = flatten(network)
    return lambda: gradients.sum(theta, x, y, keys=keys, stats=ContributionStats())


def _ghost(network: nn.Module, x: Tensor, y: Tensor) -> Callable[[], Tensor]:
    from opacus.grad_sample import GradSampleModuleFastGradientClipping
    from torch.nn.functional import cross_entropy

    own = _for_opacus(network)
    module: Any = GradSampleModuleFastGradientClipping(
        own, max_grad_norm=CLIP, loss_reduction="sum"
    )

    def clipped() -> Tensor:
        module.zero_grad()
        losses = cross_entropy(module(x), y, reduction="none")
        losses.sum().backward(retain_graph=True)
        module.zero_grad()
        factors = module.get_clipping_coef()
        module.disable_hooks()
        (factors * losses).sum().backward()
        module.enable_hooks()
        return _in_order(network, own, (parameter.grad for parameter in own.parameters()))

    return clipped


def _clipped(network: nn.Module, module: Any, x: Tensor, y: Tensor) -> Tensor:
    """Gradients per record, their norms, and the weighted sum, as in Opacus' optimiser."""
    import torch
    from torch.nn.functional import cross_entropy

    module.zero_grad()
    cross_entropy(module(x), y, reduction="sum").backward()
    samples = [parameter.grad_sample for parameter in module.parameters()]
    norms = torch.stack([sample.flatten(1).norm(dim=1) for sample in samples], 1).norm(dim=1)
    factors = (CLIP / (norms + 1e-6)).clamp(max=1.0)
    sums = (torch.einsum("i,i...", factors, sample) for sample in samples)
    return _in_order(network, module._module, sums)


if __name__ == "__main__":
    main()
