"""Proximal operators of convex regularisers f1 with a closed form.

    prox(v, step) = argmin over x of step * f1(x) + |x - v|^2 / 2

Lowy, Ghafelebashi, Razaviyayn: Private non-convex federated learning without a trusted server,
Section 1.1. Formulas: Parikh, Boyd: Proximal algorithms, 2014, Chapter 6.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from fedpriv.errors import require


@dataclass(frozen=True)
class ProximalOperator(ABC):
    """A regulariser f1 and its proximal operator. Both take a whole vector (d,) float64."""

    @abstractmethod
    def __call__(self, vector: np.ndarray, step: float) -> np.ndarray:
        """prox(vector, step), (d,) float64, for a positive `step`."""

    @abstractmethod
    def value(self, vector: np.ndarray) -> float:
        """f1(vector); inf outside of a constraint set."""


@dataclass(frozen=True)
class Nothing(ProximalOperator):
    """f1 = 0."""

    def __call__(self, vector: np.ndarray, step: float) -> np.ndarray:
        return vector

    def value(self, vector: np.ndarray) -> float:
        return 0.0


@dataclass(frozen=True)
class Ball(ProximalOperator):
    """The constraint |x| <= radius; the operator projects onto the L2 ball around zero."""

    radius: float

    def __call__(self, vector: np.ndarray, step: float) -> np.ndarray:
        norm = float(np.linalg.norm(vector))
        return vector if norm <= self.radius else vector * (self.radius / norm)

    def value(self, vector: np.ndarray) -> float:
        return 0.0 if np.linalg.norm(vector) <= self.radius * (1 + 1e-12) else math.inf


@dataclass(frozen=True)
class Box(ProximalOperator):
    """The constraint |x_j| <= bound for every coordinate; the operator projects onto the box."""

    bound: float

    def __call__(self, vector: np.ndarray, step: float) -> np.ndarray:
        return np.asarray(np.clip(vector, -self.bound, self.bound))

    def value(self, vector: np.ndarray) -> float:
        return 0.0 if np.abs(vector).max(initial=0.0) <= self.bound else math.inf


@dataclass(frozen=True)
class L1(ProximalOperator):
    """f1(x) = weight * |x|_1; the operator shrinks every coordinate by step * weight, at most to
    zero."""

    weight: float

    def __call__(self, vector: np.ndarray, step: float) -> np.ndarray:
        shrunk: np.ndarray = np.sign(vector) * np.maximum(np.abs(vector) - step * self.weight, 0.0)
        return shrunk

    def value(self, vector: np.ndarray) -> float:
        return self.weight * float(np.abs(vector).sum())


@dataclass(frozen=True)
class GroupL1(ProximalOperator):
    """f1(x) = weight * the sum of the L2 norms of groups of coordinates. The operator shrinks the
    norm of every group by step * weight, at most to zero.

    weight: factor of the sum.
    group: number of consecutive coordinates of a group; the last group may be shorter.
    """

    weight: float
    group: int

    def _norms(self, vector: np.ndarray) -> np.ndarray:
        """The norm of each coordinate's group, (d,)."""
        starts = np.arange(0, len(vector), self.group)
        squares = np.add.reduceat(vector**2, starts)
        norms: np.ndarray = np.repeat(np.sqrt(squares), np.diff([*starts, len(vector)]))
        return norms

    def __call__(self, vector: np.ndarray, step: float) -> np.ndarray:
        norms = self._norms(vector)
        left = np.maximum(norms - step * self.weight, 0.0)
        shrunk: np.ndarray = vector * np.divide(
            left, norms, out=np.zeros_like(norms), where=norms > 0
        )
        return shrunk

    def value(self, vector: np.ndarray) -> float:
        starts = np.arange(0, len(vector), self.group)
        return self.weight * float(np.sqrt(np.add.reduceat(vector**2, starts)).sum())


PROXIMAL: dict[str, Callable[[float, int], ProximalOperator]] = {
    "none": lambda size, group: Nothing(),
    "ball": lambda size, group: Ball(size),
    "box": lambda size, group: Box(size),
    "l1": lambda size, group: L1(size),
    "group_l1": GroupL1,
}
"""Constructors by name. Arguments: a size (radius, bound or weight) and the coordinates of a
group."""


def proximal(name: str, size: float, group: int) -> ProximalOperator:
    """The operator of this name. Raises ConfigError for an unknown name or an invalid argument."""
    require(name in PROXIMAL, "algo.prox", name, ", ".join(PROXIMAL))
    require(0 < size < math.inf, "algo.prox_size", size, "a positive radius, bound or weight")
    require(group >= 1, "algo.prox_group", group, "a positive number of coordinates")
    return PROXIMAL[name](size, group)


def gradient_mapping(
    point: np.ndarray, gradient: np.ndarray, step: float, operator: ProximalOperator
) -> np.ndarray:
    """(point - prox(point - step * gradient, step)) / step, (d,).

    It is zero at stationary points of f0 + f1, and equals the gradient if f1 = 0. Its norm is the
    paper's measure of utility (Section 3).
    """
    mapping: np.ndarray = (point - operator(point - step * gradient, step)) / step
    return mapping


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
        """The gradient mapping of f0 + f1, (d,).

        params: the point, (d,).
        gradient: gradient of f0 at the point, (d,).
        """
        return gradient_mapping(params, gradient, self.step, self.operator)
