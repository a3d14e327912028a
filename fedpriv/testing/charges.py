"""The distances that certificates charge, the noisy steps inside local training, and what each unit
contributes."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import singledispatch
from unittest import mock

import numpy as np

from fedpriv.certificates.noise import DpSgdNoise, SiloNoise, StepNoise, SumNoise
from fedpriv.certificates.pair_noise import PairNoise, covariance
from fedpriv.certificates.request import Noise, ObservedRelease
from fedpriv.mechanisms.base import TrainingNoise
from fedpriv.mechanisms.discrete_sampling import Generator
from fedpriv.rounds import bounding, one_row
from fedpriv.rounds.query import Query
from fedpriv.training.contributions import Contributions
from fedpriv.training.noisy_steps import NoisySteps


@dataclass(frozen=True)
class Charge:
    """What a certificate charges, as distances.

    sum: for a round's sum.
    step: for one noisy step inside training, in standard deviations of its noise.
    share: standard deviation of one silo's noise, over that of the noise that the observer faces.
    records: number of records for which a step is charged. Fewer move it less.
    norm: of the distance `sum`: 2, or 1 where contributions are bounded in L1.
    messages: number of messages, from this round's on, for which `sum` is charged together.
    touched: number of steps of a round for which `step` is charged.
    whiten: turns the noise of all messages (size,) into independent unit Gaussians, where that of
        one message is not independent of others.
    """

    sum: float
    step: float = 0.0
    share: float = 1.0
    records: int = 1
    norm: int = 2
    messages: int = 1
    touched: float = math.inf
    whiten: Callable[[np.ndarray], np.ndarray] | None = None


@singledispatch
def charge(noise: Noise, view: ObservedRelease) -> Charge | None:
    """The distances that the certificate of one unit of `view` charges; None: the class of the
    noise does not say."""
    return None


@charge.register
def _(noise: SumNoise, view: ObservedRelease) -> Charge:
    release, _, _ = noise.seen(view)
    # A method's own noise is sized for the bound alone.
    unit = view.mechanism.clip * (noise.sensitivity(view.n_summed) if noise.enforced else 1.0)
    # In L1, each silo adds the whole noise.
    shared = view.n_summed * release.hidden if view.mechanism.norm == 2 else 0.0
    share = 1 / math.sqrt(shared) if shared else 1.0
    moved = release.moved * unit * view.target.records
    return Charge(moved, share=share, norm=view.mechanism.norm, messages=view.row.messages)


@charge.register
def _of_silo(noise: SiloNoise, view: ObservedRelease) -> Charge:
    release, _, _ = noise.seen(view)
    moved = release.moved * view.mechanism.clip / release.size * view.target.records
    return Charge(moved, share=1 / math.sqrt(release.hidden))


@charge.register
def _(noise: PairNoise, view: ObservedRelease) -> Charge:
    def whitened(noised: np.ndarray) -> np.ndarray:
        own = (
            view.mechanism.noise_multiplier * view.mechanism.clip * np.array(noise.deviations(view))
        )
        values, vectors = np.linalg.eigh(covariance(np.array(noise.graph), own, noise.ratio))
        root = vectors @ np.diag(values**-0.5) @ vectors.T
        return np.ravel(root @ noised.reshape(len(own), -1))

    return replace(_of_silo(noise, view), whiten=whitened)


@charge.register
def _(noise: DpSgdNoise, view: ObservedRelease) -> Charge:
    deviation = view.mechanism.noise_multiplier * noise.of_silo(view.silo)
    return Charge(np.inf, view.target.records / deviation)


@charge.register
def _(noise: StepNoise, view: ObservedRelease) -> Charge:
    steps = noise.steps(view.records)
    moved = steps.moved / steps.size * view.target.records
    # All but the last step are released before.
    last = moved * view.mechanism.clip * steps.in_message
    return Charge(last, moved / view.mechanism.noise_multiplier, touched=steps.touched)


Noised = Callable[[np.ndarray, float, Callable[[np.ndarray], np.ndarray]], np.ndarray]
"""From a step's sum, the standard deviation of its noise, and a function that noises a sum, to the
sum that training continues from."""


@contextmanager
def noisy_steps(change: Noised) -> Iterator[None]:
    """Context in which the sums of noisy steps inside local training are those of `change`. Steps
    are those of Python, as with noise that protects somebody."""
    add = TrainingNoise.add

    def added(noise: TrainingNoise, total: np.ndarray, rng: Generator) -> np.ndarray:
        return change(total, noise.deviation, lambda own: add(noise, own, rng))

    with (
        mock.patch.object(TrainingNoise, "add", added),
        mock.patch.object(NoisySteps, "program", None),
    ):
        yield


@contextmanager
def contributions(found: np.ndarray) -> Iterator[None]:
    """Context that notes what each unit contributes, after the bound, in `found` (2, n_units): the
    sum over silos of its projections onto one direction, in which every coordinate has a weight of
    its own, and its greatest length in bounds."""
    rows_of = bounding.bounded_rows

    def seen(block: Contributions, query: Query, bounds: np.ndarray | None) -> bounding.BoundedRows:
        rows = rows_of(block, query, bounds)
        vectors = rows.vectors[rows.finite].cpu().numpy()
        lengths = np.linalg.norm(vectors, query.mechanism.norm, axis=1) / query.mechanism.clip
        projected = vectors @ np.cos(np.arange(vectors.shape[1])) / query.mechanism.clip
        np.add.at(found[0], rows.units[rows.finite], projected)
        np.maximum.at(found[1], rows.units[rows.finite], lengths)
        return rows

    with (
        mock.patch.object(bounding, "bounded_rows", seen),
        mock.patch.object(one_row, "bounded_rows", seen),
    ):
        yield
