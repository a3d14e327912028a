"""Proximal operators of convex regularisers f1 with a closed form.

    prox(v, step) = argmin over x of step * f1(x) + |x - v|^2 / 2

Lowy, Ghafelebashi, Razaviyayn: Private non-convex federated learning without a trusted server,
Section 1.1. Formulas: Parikh, Boyd: Proximal algorithms, 2014, Chapter 6.

- none: f1 = 0.
- ball: the constraint |x| <= size; the operator projects onto the L2 ball around zero.
- box: the constraint |x_j| <= size for every coordinate; the operator projects onto the box.
- l1: f1(x) = size * |x|_1; the operator shrinks every coordinate by step * size, at most to zero.
- group_l1: f1(x) = size * the sum of the L2 norms of groups of consecutive coordinates; the last
  group may be shorter. The operator shrinks every norm by step * size, at most to zero.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from fedpriv.errors import require

Operator = Callable[[np.ndarray, float, float, int], np.ndarray]
"""prox(v, step), from v, size, step and group."""
Value = Callable[[np.ndarray, float, int], float]
"""f1(x), from x, size and group; inf outside of a constraint set."""


def _onto_ball(v: np.ndarray, size: float, step: float, group: int) -> np.ndarray:
    norm = float(np.linalg.norm(v))
    return v if norm <= size else v * (size / norm)


def _shrunk_groups(v: np.ndarray, size: float, step: float, group: int) -> np.ndarray:
    starts = np.arange(0, len(v), group)
    squares = np.add.reduceat(v**2, starts)
    norms = np.repeat(np.sqrt(squares), np.diff([*starts, len(v)]))
    left = np.maximum(norms - step * size, 0.0)
    shrunk: np.ndarray = v * np.divide(left, norms, out=np.zeros_like(norms), where=norms > 0)
    return shrunk


def _sum_of_norms(x: np.ndarray, size: float, group: int) -> float:
    starts = np.arange(0, len(x), group)
    return size * float(np.sqrt(np.add.reduceat(x**2, starts)).sum())


PROXIMAL: dict[str, tuple[Operator, Value]] = {
    "none": (lambda v, size, step, group: v, lambda x, size, group: 0.0),
    "ball": (
        _onto_ball,
        lambda x, size, group: 0.0 if np.linalg.norm(x) <= size * (1 + 1e-12) else math.inf,
    ),
    "box": (
        lambda v, size, step, group: np.asarray(np.clip(v, -size, size)),
        lambda x, size, group: 0.0 if np.abs(x).max(initial=0.0) <= size else math.inf,
    ),
    "l1": (
        lambda v, size, step, group: np.sign(v) * np.maximum(np.abs(v) - step * size, 0.0),
        lambda x, size, group: size * float(np.abs(x).sum()),
    ),
    "group_l1": (_shrunk_groups, _sum_of_norms),
}
"""The operators and the regularisers, by name."""


@dataclass(frozen=True)
class ProximalOperator:
    """A regulariser f1 and its proximal operator. Both take a whole vector (d,) float64.

    name: of the regulariser.
    size: radius, bound or weight.
    group: number of coordinates of a group.

    Raises ConfigError for an unknown name or an invalid argument.
    """

    name: str
    size: float = 1.0
    group: int = 1

    def __post_init__(self) -> None:
        size = self.size
        require(self.name in PROXIMAL, "algo.prox", self.name, ", ".join(PROXIMAL))
        require(0 < size < math.inf, "algo.prox_size", size, "a positive radius, bound or weight")
        require(self.group >= 1, "algo.prox_group", self.group, "a positive number of coordinates")

    def __call__(self, vector: np.ndarray, step: float) -> np.ndarray:
        """prox(vector, step), (d,) float64, for a positive `step`."""
        return PROXIMAL[self.name][0](vector, self.size, step, self.group)

    def value(self, vector: np.ndarray) -> float:
        """f1(vector); inf outside of a constraint set."""
        return PROXIMAL[self.name][1](vector, self.size, self.group)


@dataclass(frozen=True)
class Regulariser:
    """The regulariser f1 that is added to the training loss f0.

    operator: proximal operator of f1.
    step: learning rate of the server, used for the gradient mapping.
    """

    operator: ProximalOperator
    step: float

    def value(self, params: np.ndarray) -> float:
        """f1(params), for params (d,)."""
        return self.operator.value(params)

    def mapping(self, params: np.ndarray, gradient: np.ndarray) -> np.ndarray:
        """The gradient mapping (w - prox(w - step * gradient, step)) / step, (d,).

        It is zero at stationary points of f0 + f1, and equals the gradient if f1 = 0. Its norm is
        the paper's measure of utility (Section 3).

        params: the point w, (d,).
        gradient: gradient of f0 at the point, (d,).
        """
        stepped = self.operator(params - self.step * gradient, self.step)
        mapping: np.ndarray = (params - stepped) / self.step
        return mapping
