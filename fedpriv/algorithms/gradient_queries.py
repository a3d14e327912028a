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

    from fedpriv.training.batch_sums import BatchSums

    data = silo.data
    mechanism = query.mechanism
    rows = batches.rows(silo, query, size)
    stream = query.stream("dropout")

    def keys(batch: np.ndarray) -> np.ndarray:
        return silo.streams.unit_keys(stream, query.round, silo.name, data.records[batch])

    x, y = data.x.unsqueeze(1), data.y.unsqueeze(1)
    sums = BatchSums(mechanism.limit, silo.model, silo.task, x, y, keys, stats)
    points = [
        torch.tensor(down[name], dtype=torch.float32, device=data.x.device)
        for name in ("params", "previous")
        if name in down
    ]
    mean, *previous = [sums.sum(point, rows) / size for point in points]
    for other in previous:
        mean = mean - other
    within, beyond = stats.within / size, stats.clipped / size
    yield Contributions(np.array([silo.index]), mechanism.marked(mean, within, beyond).unsqueeze(0))
