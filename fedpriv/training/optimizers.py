"""Optimisers of local training: how a step follows a gradient.

An optimiser is frozen configuration; `init` creates its memory. It works on stacks: tensors (users,
...) whose rows are the parameters of different users. A step moves a prefix of the users. Torch is
imported only where it is used.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fedpriv.errors import require

if TYPE_CHECKING:
    from torch import Tensor

    Slots = dict[str, list[Tensor]]
    """An optimiser's memory for one block of users: lists of stacks (users, ...) by name."""


@dataclass(frozen=True)
class LocalOptimizer(ABC):
    """A first-order optimiser. Every user starts every round with fresh slots, unless the method
    keeps them.

    A new optimiser names its slots and moves stacks of parameters:

    >>> import torch
    >>> @dataclass(frozen=True)
    ... class SignMomentum(LocalOptimizer):
    ...     decay: float = 0.5
    ...
    ...     @property
    ...     def slots(self):
    ...         return ("mean",)
    ...
    ...     def step(self, parameters, gradients, slots, *, lr):
    ...         for stack, gradient, mean in zip(parameters, gradients, slots["mean"]):
    ...             active = len(gradient)
    ...             mean[:active].lerp_(gradient, 1 - self.decay)
    ...             stack[:active].sub_(mean[:active].sign(), alpha=lr)
    >>> optimizer = SignMomentum()
    >>> two_users = [torch.zeros(2, 3)]
    >>> slots = optimizer.init(two_users)
    >>> optimizer.step(two_users, [torch.tensor([[1.0, -2.0, 0.0]])], slots, lr=0.1)
    >>> two_users[0].tolist()[1]  # only the first user was active
    [0.0, 0.0, 0.0]
    """

    @property
    def plain(self) -> bool:
        """Whether a step is exactly w -= lr * gradient, which trainers may fuse with the backward
        pass."""
        return False

    def require_plain(self) -> None:
        """Raise ConfigError unless it is `plain`."""
        name = type(self).__name__.lower()
        require(self.plain, "optimizer", name, "sgd without momentum and weight decay")

    @property
    @abstractmethod
    def slots(self) -> tuple[str, ...]:
        """Names of the slots that hold one number for each parameter of each user."""

    @property
    def counters(self) -> tuple[str, ...]:
        """Names of the slots that hold one number a user, (users,) float64."""
        return ()

    def init(self, parameters: Sequence[Tensor]) -> Slots:
        """Zeros for stacks (users, ...)."""
        import torch

        first = parameters[0]
        stacks = {
            name: [stack.new_zeros(stack.shape) for stack in parameters] for name in self.slots
        }
        counts = {n: [first.new_zeros(len(first), dtype=torch.float64)] for n in self.counters}
        return stacks | counts

    @abstractmethod
    def step(
        self, parameters: Sequence[Tensor], gradients: Sequence[Tensor], slots: Slots, *, lr: float
    ) -> None:
        """Move the first len(gradients[i]) users of every stack, in place. The gradients stay
        unchanged."""


class _OfTorch(LocalOptimizer):
    """Checks the settings of torch's optimisers; all but two are fractions."""

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if name == "eps":
                allowed, ok = "a positive finite number", 0 < value < math.inf
            elif name == "weight_decay":
                allowed, ok = "a finite number of at least 0", 0 <= value < math.inf
            else:
                allowed, ok = "a number from 0 to below 1", 0 <= value < 1
            require(ok, f"optimizer.{name}", value, allowed)


@dataclass(frozen=True)
class Sgd(_OfTorch):
    """Stochastic gradient descent as torch.optim.SGD has it: v <- momentum v + g, w <- w - lr v,
    with weight_decay * w added to every gradient."""

    momentum: float = 0.0
    weight_decay: float = 0.0

    @property
    def plain(self) -> bool:
        return not self.momentum and not self.weight_decay

    def require_plain(self) -> None:
        for key, value in vars(self).items():
            require(not value, f"optimizer.{key}", value, "0: the algorithm defines its own steps")

    @property
    def slots(self) -> tuple[str, ...]:
        return ("velocity",) if self.momentum else ()

    def step(
        self, parameters: Sequence[Tensor], gradients: Sequence[Tensor], slots: Slots, *, lr: float
    ) -> None:
        for i, (stack, gradient) in enumerate(zip(parameters, gradients)):
            active = stack[: len(gradient)]
            change = _decayed(gradient, active, self.weight_decay)
            if self.momentum:
                change = slots["velocity"][i][: len(gradient)].mul_(self.momentum).add_(change)
            active.sub_(change, alpha=lr)


@dataclass(frozen=True)
class RmsProp(_OfTorch):
    """RMSprop as torch.optim.RMSprop has it: s <- alpha s + (1 - alpha) g^2, v <- momentum v + g /
    (sqrt(s) + eps), w <- w - lr v, with weight_decay * w added to every gradient (Hinton: lecture
    6e of Neural Networks, 2012)."""

    alpha: float = 0.99
    eps: float = 1e-8
    momentum: float = 0.0
    weight_decay: float = 0.0

    @property
    def slots(self) -> tuple[str, ...]:
        return ("square", "velocity") if self.momentum else ("square",)

    def step(
        self, parameters: Sequence[Tensor], gradients: Sequence[Tensor], slots: Slots, *, lr: float
    ) -> None:
        for i, (stack, gradient) in enumerate(zip(parameters, gradients)):
            active = stack[: len(gradient)]
            change = _decayed(gradient, active, self.weight_decay)
            square = slots["square"][i][: len(gradient)]
            square.mul_(self.alpha).addcmul_(change, change, value=1 - self.alpha)
            root = square.sqrt().add_(self.eps)
            if self.momentum:
                velocity = slots["velocity"][i][: len(gradient)]
                active.sub_(velocity.mul_(self.momentum).addcdiv_(change, root), alpha=lr)
            else:
                active.addcdiv_(change, root, value=-lr)


@dataclass(frozen=True)
class Adam(_OfTorch):
    """Adam (Kingma, Ba: ICLR 2015, Algorithm 1) as torch.optim.Adam has it, with weight_decay * w
    added to every gradient. A user's bias correction follows the user's own number of steps."""

    beta1: float = 0.9
    beta2: float = 0.999
    eps: float = 1e-8
    weight_decay: float = 0.0

    slots = ("mean", "square")
    counters = ("steps",)

    def step(
        self, parameters: Sequence[Tensor], gradients: Sequence[Tensor], slots: Slots, *, lr: float
    ) -> None:
        steps = slots["steps"][0][: len(gradients[0])].add_(1)
        rates = lr / (1 - self.beta1**steps)
        roots = (1 - self.beta2**steps).sqrt()
        for i, (stack, gradient) in enumerate(zip(parameters, gradients)):
            active = stack[: len(gradient)]
            change = _decayed(gradient, active, self.weight_decay)
            mean, square = (slots[name][i][: len(gradient)] for name in ("mean", "square"))
            mean.lerp_(change, 1 - self.beta1)
            square.mul_(self.beta2).addcmul_(change, change, value=1 - self.beta2)
            rate, root = (
                each.to(stack.dtype).view(-1, *[1] * (stack.dim() - 1)) for each in (rates, roots)
            )
            active.sub_(mean.mul(rate).div_(square.sqrt().div_(root).add_(self.eps)))


def _decayed(gradient: Tensor, active: Tensor, weight_decay: float) -> Tensor:
    """The gradient of the loss plus weight_decay / 2 |w|^2."""
    return gradient.add(active, alpha=weight_decay) if weight_decay else gradient
