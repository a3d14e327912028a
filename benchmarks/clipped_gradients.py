"""The sum of a batch's clipped per-record gradients, beside Opacus: same network, records and clip.

`ghost` is Opacus' GradSampleModuleFastGradientClipping: norms by hooks, then a second backward
pass. `vectorised` is its GradSampleModule, a gradient per record by hooks, and `functorch` the same
by torch.func. All programs take alternating turns in one process on one core. The ratio is that of
the fastest Opacus program's processor seconds to fedpriv's. The sums are compared first, without
dropout, because each program draws its own masks.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks._fresh_process import in_fresh_process
from benchmarks._ratios import alternating_turns, ratio

if TYPE_CHECKING:
    from torch import Tensor, nn

TURNS = 15
GOAL = 1.0
CLIP = 1.0
ROWS = 606


@dataclass(frozen=True)
class Case:
    """A network of fedpriv.models and its records.

    name: the network's name.
    shape: shape of a record.
    outputs: number of outputs.
    """

    name: str
    shape: tuple[int, ...]
    outputs: int

    def build(self, dropout: float) -> nn.Module:
        """The network with this dropout."""
        from fedpriv.models.cnn import CifarCnn, MnistCnn
        from fedpriv.models.mlp import Mlp

        models = {
            "odd/even MLP": Mlp([64], False, 0.0),
            "MNIST CNN": MnistCnn([10, 20], 50, dropout),
            "CIFAR CNN": CifarCnn([6, 16], [120, 84]),
        }
        return models[self.name].build(self.shape, self.outputs)


CASES = [
    Case("odd/even MLP", (50,), 2),
    Case("MNIST CNN", (1, 28, 28), 10),
    Case("CIFAR CNN", (3, 32, 32), 10),
]
OURS = "fedpriv"


def main() -> None:
    """Run every case in its own process, and print a table."""
    print(f"{ROWS} records, processor milliseconds of a sum, median of {TURNS} turns")
    for case in CASES:
        times = in_fresh_process(measure, case)
        opacus = [name for name in times if name != OURS]
        best = min(opacus, key=lambda name: float(np.median(times[name])))
        shown = "  ".join(
            f"{name} {1e3 * float(np.median(spent)):8.1f}" for name, spent in times.items()
        )
        print(f"{case.name:>14}  {shown}  {ratio(times[OURS], times[best])}  goal {GOAL}")


def measure(case: Case) -> dict[str, list[float]]:
    """Processor seconds of every turn."""
    import torch

    warnings.filterwarnings("ignore", message="Full backward hook is firing")  # Opacus' own hooks
    torch.set_num_threads(1)
    torch.manual_seed(0)
    x = torch.randn(ROWS, *case.shape)
    y = torch.randint(0, case.outputs, (ROWS,))
    _agree(programs(case.build(0.0), x, y))
    return alternating_turns(programs(case.build(0.5), x, y), TURNS, warm_up=2)


def programs(network: nn.Module, x: Tensor, y: Tensor) -> dict[str, Callable[[], Tensor]]:
    """Programs that return the sum (d,) of clipped gradients, by name."""
    import copy

    from opacus.grad_sample import GradSampleModule

    vectorised = GradSampleModule(copy.deepcopy(network), loss_reduction="sum")
    functorch = GradSampleModule(copy.deepcopy(network), loss_reduction="sum", force_functorch=True)
    return {
        OURS: _ours(network, x, y),
        "ghost": _ghost(copy.deepcopy(network), x, y),
        "vectorised": lambda: _clipped(vectorised, x, y),
        "functorch": lambda: _clipped(functorch, x, y),
    }


def _agree(sums: dict[str, Callable[[], Tensor]]) -> None:
    """Raise ValueError if two programs give different sums."""
    ours = sums[OURS]()
    for name, program in sums.items():
        differs = float((program().double() - ours).norm() / ours.norm())
        if differs > 1e-4:  # Opacus divides by the norm plus 1e-6, in float32
            raise ValueError(f"{name} differs from {OURS} by {differs:.1e}")


def _ours(network: nn.Module, x: Tensor, y: Tensor) -> Callable[[], Tensor]:
    from fedpriv.models.tasks import Classification
    from fedpriv.training.batch_sums import BatchSums
    from fedpriv.training.contributions import ContributionStats
    from fedpriv.training.vectors import flatten
    from fedpriv.util.work import run_work

    keys = np.arange(len(x), dtype=np.uint64)
    sums = BatchSums(
        CLIP,
        network,
        Classification(),
        x.unsqueeze(1),
        y.unsqueeze(1),
        lambda: keys,
        ContributionStats(),
    )
    theta = flatten(network)
    batch = np.arange(len(x))
    return lambda: run_work(sums.asked(theta, batch))


def _ghost(network: nn.Module, x: Tensor, y: Tensor) -> Callable[[], Tensor]:
    import torch
    from opacus.grad_sample import GradSampleModuleFastGradientClipping
    from torch.nn.functional import cross_entropy

    module: Any = GradSampleModuleFastGradientClipping(
        network, max_grad_norm=CLIP, loss_reduction="sum"
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
        return torch.cat([parameter.grad.flatten() for parameter in network.parameters()])

    return clipped


def _clipped(module: Any, x: Tensor, y: Tensor) -> Tensor:
    """Gradients per record, their norms, and the weighted sum, as in Opacus' optimiser."""
    import torch
    from torch.nn.functional import cross_entropy

    module.zero_grad()
    cross_entropy(module(x), y, reduction="sum").backward()
    samples = [parameter.grad_sample for parameter in module.parameters()]
    norms = torch.stack([sample.flatten(1).norm(dim=1) for sample in samples], 1).norm(dim=1)
    factors = (CLIP / (norms + 1e-6)).clamp(max=1.0)
    return torch.cat([torch.einsum("i,i...", factors, sample).flatten() for sample in samples])


if __name__ == "__main__":
    main()
