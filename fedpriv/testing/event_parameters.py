"""What an event says in numbers that can be measured: how much noise, and how large a sample."""

from __future__ import annotations

import math

import dp_accounting as dp

from fedpriv.accountants.events import Event


def noise_multiplier(event: Event) -> float | None:
    """The noise multiplier z of a Gaussian release, sampled or not, or of one Laplace release.

    inf for no guarantee; None for anything else. T releases tell as much as one release with
    z / sqrt(T). What is computed from them, such as a trained model, tells no more. A unit of k
    records moves a release k times as far as one record.
    """
    inner = event.certified
    if isinstance(inner, dp.LaplaceDpEvent):
        return float(inner.noise_multiplier) / event.group_size
    times = 1
    while isinstance(
        inner,
        dp.PoissonSampledDpEvent | dp.SampledWithoutReplacementDpEvent | dp.SelfComposedDpEvent,
    ):
        times *= inner.count if isinstance(inner, dp.SelfComposedDpEvent) else 1
        inner = inner.event
    if isinstance(inner, dp.NonPrivateDpEvent):
        return math.inf
    if isinstance(inner, dp.GaussianDpEvent):
        noise = float(inner.noise_multiplier)
    elif isinstance(inner, dp.ZCDpEvent):
        noise = (2 * inner.rho) ** -0.5
    else:
        return None
    return noise / math.sqrt(times) / event.group_size


def inclusion(event: Event) -> tuple[float, int]:
    """How often a unit's records may be drawn for the release: the probability of each draw, and
    the number of draws. (1.0, 1) without a sample."""
    inner = event.certified
    draws = event.group_size
    while isinstance(inner, dp.SelfComposedDpEvent):
        draws *= inner.count
        inner = inner.event
    if isinstance(inner, dp.PoissonSampledDpEvent):
        return float(inner.sampling_probability), draws
    if isinstance(inner, dp.SampledWithoutReplacementDpEvent):
        return inner.sample_size / inner.source_dataset_size, draws
    return 1.0, 1
