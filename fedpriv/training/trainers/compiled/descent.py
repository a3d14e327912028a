"""Noisy steps along means of clipped gradients, in C++."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from fedpriv.training.layers.compiled_specs import fields
from fedpriv.training.trainers.compiled.problem import Program

NOISE_AT_ONCE = 2**15
"""Numbers that are drawn at once: they stay in the processor's cache for all runs."""


class DescentSpec(ctypes.Structure):
    """`Descent` of descent.h."""

    _fields_ = (
        fields(ctypes.c_void_p, "x y rows_of")
        + fields(ctypes.c_double, "clip rate deviation")
        + fields(ctypes.c_void_p, "norms parameters")
    )


class DescentsSpec(ctypes.Structure):
    """`Descents` of descent.h."""

    _fields_ = (
        fields(ctypes.c_void_p, "runs")
        + fields(ctypes.c_int64, "n start end batch noisy")
        + fields(ctypes.c_void_p, "drawn")
    )


@dataclass(frozen=True)
class Descent:
    """Steps of one run.

    theta: (d,) float64, the parameters before the first step.
    x, y: (m, ...), the records.
    rows: (steps, batch) int64, which of them each step takes.
    clip: bound on a gradient's L2 norm.
    rate: learning rate.
    deviation: of the noise on a batch's mean gradient.
    """

    theta: np.ndarray
    x: Tensor
    y: Tensor
    rows: np.ndarray
    clip: float
    rate: float
    deviation: float


def descend(
    program: Program, runs: Sequence[Descent], draw: Callable[[int], np.ndarray]
) -> list[tuple[np.ndarray, Tensor]]:
    """The parameters (d,) float64 of each run after its steps, of which the last has no noise, and
    the norms (steps, batch) float64 of its gradients. Each run's are those that it has alone.

    draw: returns that many standard normal numbers. All runs share them, d a step, in order.

    Raises as `Program.records` does.
    """
    places = program.places.numpy()
    size = program.network.size
    steps, batch = runs[0].rows.shape
    specs = (DescentSpec * len(runs))()
    parameters = np.zeros((len(runs), program.size))
    norms = torch.empty(len(runs), steps, batch, dtype=torch.float64)
    alive = []
    for place, (run, spec) in enumerate(zip(runs, specs, strict=True)):
        x, y, rows = *program.records(run.x, run.y), np.ascontiguousarray(run.rows, np.int64)
        alive += [x, y, rows]
        parameters[place, places] = run.theta
        spec.x, spec.y, spec.rows_of = x.data_ptr(), y.data_ptr(), rows.ctypes.data
        spec.clip, spec.rate, spec.deviation = run.clip, run.rate, run.deviation
        spec.norms = norms[place].data_ptr()
        spec.parameters = parameters[place].ctypes.data
    start = torch.zeros(program.size)
    problem = program.problem(start, rows=1)
    memory = np.empty(program.loaded.workspace_of_sum(ctypes.byref(problem)), dtype=np.uint8)
    at_once = max(1, NOISE_AT_ONCE // size)
    noised = any(run.deviation for run in runs)
    for first in range(0, steps, at_once):
        end = min(first + at_once, steps)
        noisy = min(end, steps - 1) - first if noised else 0
        drawn = draw(noisy * size)
        given = DescentsSpec(
            runs=ctypes.addressof(specs),
            n=len(runs),
            start=first,
            end=end,
            batch=batch,
            noisy=noisy,
            drawn=drawn.ctypes.data,
        )
        program.loaded.descend(ctypes.byref(problem), ctypes.byref(given), memory.ctypes.data)
    return [(own[places], found) for own, found in zip(parameters, norms)]
