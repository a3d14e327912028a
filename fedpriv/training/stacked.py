"""The fast road: networks that are chains of known layers, trained by hand-written batched passes.

A step of k users costs one kernel per operation instead of k, builds no autograd graph, allocates nothing, and
updates parameters in the backward pass.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from fedpriv.tasks import Task
from fedpriv.training import dense
from fedpriv.training.dense import Context, Layer
from fedpriv.training.road import Road
from fedpriv.training.schedule import Batch, Limits
from fedpriv.training.size import measure
from fedpriv.training.space import Masks, Space


def chain(module: nn.Module) -> list[nn.Module]:
    """The leaves of nested nn.Sequential in the order of their calls, without those that do nothing in training."""
    if isinstance(module, nn.Sequential):
        return [leaf for child in module for leaf in chain(child)]
    idle = isinstance(module, nn.Identity) or (isinstance(module, nn.Dropout | nn.Dropout2d) and module.p == 0)
    return [] if idle else [module]


class Program:
    """A network bound to one step shape."""

    def __init__(self, stacked: Stacked, a: int, b: int) -> None:
        space, self.layers = stacked.space, []
        self.x = h = space.take("x", (a, b, *stacked.shape))
        parameters = iter(stacked.parameters)
        first, in_place = True, False
        for index, (kind, module) in enumerate(stacked.kinds):
            own = [next(parameters)[:a] for _ in module.parameters()]
            layer: Layer = kind(module, h, own, Context(space, stacked.masks, index, in_place, first))
            self.layers.append(layer)
            h, first, in_place = layer.y, first and not own, not layer.keeps_output
        self.outputs, self.task = h, stacked.task
        self.gradient = grad = space.gradient_like(h)
        learn = next(i for i, layer in enumerate(self.layers) if layer.parameters)
        self.backwards = self.layers[: learn - 1 if learn else None : -1]
        for layer in self.backwards:
            grad = layer.attach(grad)
        self.loaded: Batch | None = None

    def run(self, batch: Batch, lr: float) -> None:
        """One SGD step."""
        if batch is not self.loaded:
            self.x.copy_(batch.x)
            self.layers[0].prepare()
            self.loaded = batch
        for layer in self.layers:
            layer.forward()
        self.gradient.copy_(self.task.gradient(self.outputs, batch.y, batch.weight))
        for layer in self.backwards:
            layer.backward(lr)


class Stacked(Road):
    """Trains chains of the layers in KINDS."""

    KINDS = {
        nn.Linear: dense.Linear,
        nn.ReLU: dense.ReLU,
        nn.GroupNorm: dense.GroupNorm,
        nn.Dropout: dense.Dropout,
        nn.Flatten: dense.Flatten,
    }

    @classmethod
    def fits(cls, module: nn.Module, shape: tuple[int, ...]) -> bool:
        """Whether this road can train `module` on records of `shape`."""
        leaves = chain(module)
        distinct = {id(p) for leaf in leaves for p in leaf.parameters()}
        whole = len(distinct) == sum(1 for leaf in leaves for _ in leaf.parameters()) > 0
        return whole and all(type(leaf) in cls.KINDS for leaf in leaves)

    def __init__(
        self, module: nn.Module, theta: Tensor, shape: tuple[int, ...], task: Task, generator: torch.Generator
    ) -> None:
        self.module, self.theta, self.shape, self.task = module, theta, shape, task
        self.space, self.masks = Space(theta.device), Masks(generator)
        self.kinds = [(self.KINDS[type(leaf)], leaf) for leaf in chain(module)]
        size = measure(module, shape)
        self.limits = Limits(300, 12 * size.parameters, 6 * size.activations, 16 << 20)

    @torch.inference_mode()
    def begin(self, users: int) -> None:
        self.programs: dict[tuple[int, int], Program] = {}
        self.parameters = []
        pieces = self.theta.split([p.numel() for p in self.module.parameters()])
        for index, (p, start) in enumerate(zip(self.module.parameters(), pieces)):
            stack = self.space.take(("parameter", index), (users, *p.shape))
            stack.copy_(start.view(p.shape))
            self.parameters.append(stack)

    @torch.inference_mode()
    def step(self, batch: Batch, lr: float) -> None:
        a, b = batch.weight.shape
        if (a, b) not in self.programs:
            self.programs[a, b] = Program(self, a, b)
        self.programs[a, b].run(batch, lr)

    def deltas(self) -> Tensor:
        return torch.cat([stack.flatten(1) for stack in self.parameters], dim=1).sub_(self.theta)
