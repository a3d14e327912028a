"""Noisy steps along sums of clipped gradients, in C++."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from torch import Tensor

from fedpriv.training.layers.compiled_specs import fields
from fedpriv.training.trainers.compiled.clipped_sum import PIECE
from fedpriv.training.trainers.compiled.problem import Program


class DescentSpec(ctypes.Structure):
    """`Descent` of descent.h."""

    _fields_ = (
        fields(ctypes.c_void_p, "x y keys rows_of ends rates anchor")
        + fields(ctypes.c_double, "clip deviation pull")
        + fields(ctypes.c_void_p, "norms parameters")
    )


class DescentsSpec(ctypes.Structure):
    """`Descents` of descent.h."""

    _fields_ = (
        fields(ctypes.c_void_p, "runs")
        + fields(ctypes.c_int64, "n steps noisy places piece")
        + fields(ctypes.c_void_p, "noise names")
    )


@dataclass
class Descent:
    """A run and its steps so far; the arguments are those of `NoisySteps`.

    own, pulled: its parameters and its anchor in the order of C++.
    steps: how many it has taken.
    """

    program: Program
    theta: np.ndarray
    x: Tensor
    y: Tensor
    keys: np.ndarray
    rates: np.ndarray
    clip: float
    deviation: float
    pull: float
    anchor: np.ndarray | float
    steps: int = 0

    def __post_init__(self) -> None:
        self.x, self.y = self.program.records(self.x, self.y)
        self.keys = np.ascontiguousarray(self.keys)
        self.own = self._in_cpp(self.theta)
        self.pulled = self._in_cpp(self.anchor)

    def _in_cpp(self, vector: np.ndarray | float) -> np.ndarray:
        found = np.zeros(self.program.size)
        found[self.program.places.numpy()] = vector
        return found

    @property
    def parameters(self) -> np.ndarray:
        """(d,) float64, after the steps so far."""
        found: np.ndarray = self.own[self.program.places.numpy()]
        return found


def descend(
    runs: Sequence[Descent],
    batches: Sequence[Sequence[np.ndarray]],
    noise: np.ndarray,
    names: np.ndarray,
) -> list[np.ndarray]:
    """Take the next steps of each run, which are those that it takes alone. Returns for each run
    the norms of the batches' gradients, in order, (n,) float64.

    batches: of each run, the rows of the next steps.
    noise: (noisy, d) standard normal numbers, which all runs share; later steps have none.
    names: (steps, dropout layers) uint64, of what they drop.
    """
    program = runs[0].program
    specs = (DescentSpec * len(runs))()
    alive, found = [], []
    for run, own, spec in zip(runs, batches, specs, strict=True):
        rows = np.concatenate(own).astype(np.int64)
        ends = np.cumsum([len(batch) for batch in own], dtype=np.int64)
        rates = run.rates[run.steps : run.steps + len(own)].astype(np.float64)
        run.steps += len(own)
        norms = np.empty(len(rows))
        alive += [rows, ends, rates]
        found.append(norms)
        spec.x, spec.y, spec.keys = run.x.data_ptr(), run.y.data_ptr(), run.keys.ctypes.data
        spec.rows_of, spec.ends, spec.rates = (each.ctypes.data for each in (rows, ends, rates))
        spec.anchor, spec.pull = run.pulled.ctypes.data, run.pull
        spec.clip, spec.deviation = run.clip, run.deviation
        spec.norms, spec.parameters = norms.ctypes.data, run.own.ctypes.data
    problem = program.problem(program.real, rows=1)  # each run brings its parameters
    memory = np.empty(program.loaded.workspace_of_sum(ctypes.byref(problem)), dtype=np.uint8)
    noise, names = np.ascontiguousarray(noise), np.ascontiguousarray(names)
    given = DescentsSpec(
        runs=ctypes.addressof(specs),
        n=len(runs),
        steps=len(names),
        noisy=len(noise),
        places=names.shape[1],
        piece=PIECE,
        noise=noise.ctypes.data,
        names=names.ctypes.data,
    )
    program.loaded.descend(ctypes.byref(problem), ctypes.byref(given), memory.ctypes.data)
    return found
