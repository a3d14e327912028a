"""A silo's answer to a query of `fedpriv.algorithms.gradient_method`: the noised mean of a batch's
clipped gradients."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from fedpriv.certificates.sampling import Batches
from fedpriv.rounds.local_job import LocalJob
from fedpriv.rounds.query import Query
from fedpriv.rounds.silo_context import Silo
from fedpriv.training.contributions import Contributions, ContributionStats

GRADIENT = "gradient"
DIFFERENCE = "difference"
GRADIENTS_PER_RECORD = {GRADIENT: 1, DIFFERENCE: 2}
"""Number of clipped gradients in a record's part of a message, by the query's name."""


def noised_mean(
    silo: Silo, query: Query, down: Mapping[str, np.ndarray], *, batches: Batches, size: int
) -> LocalJob:
    """The mean clipped gradient of a batch at "params", minus that at "previous" if the broadcast
    contains it, with the silo's own noise share."""
    stats = ContributionStats()
    rng = silo.streams.secret(query.stream("noise"), query.round, silo.name)
    noise = query.mechanism.noise_share(
        query.size, 1, rng, sensitivity=1 / size, encoding=query.encoding
    )
    return LocalJob(
        _mean(silo, query, down, batches=batches, size=size, stats=stats), noise, stats=stats
    )


def _mean(
    silo: Silo,
    query: Query,
    down: Mapping[str, np.ndarray],
    *,
    batches: Batches,
    size: int,
    stats: ContributionStats,
) -> Iterator[Contributions]:
    """The mean clipped gradient at "params", minus that at "previous" if the broadcast contains it.
    Both use the same records and the same dropout."""
    import torch

    from fedpriv.training.clipped import NO_KEYS, ClippedGradients

    data = silo.data
    mechanism = query.mechanism
    rows = batches.rows(silo, query, size)
    gradients = ClippedGradients(
        silo.model, silo.task, mechanism.limit, shape=tuple(data.x.shape[1:]), dtype=data.x.dtype
    )
    keys = silo.dropout_keys(query)[rows] if gradients.drops else NO_KEYS
    index = torch.from_numpy(rows).to(data.x.device)
    x, y = data.x[index], data.y[index]
    points = [
        torch.tensor(down[name], dtype=torch.float32, device=data.x.device)
        for name in ("params", "previous")
        if name in down
    ]
    mean, *previous = [gradients.sum(at, x, y, keys=keys, stats=stats) / size for at in points]
    for other in previous:
        mean = mean - other
    within, beyond = stats.within / size, stats.clipped / size
    yield silo.contribution(mechanism.marked(mean, within, beyond).numpy())
