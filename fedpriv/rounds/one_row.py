"""Jobs with at most one contribution, such as those of devices: the contributions of many silos are
bounded as rows of one matrix.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from fedpriv.rounds.bounding import bounded_rows
from fedpriv.rounds.local_job import LocalJob, OneRow
from fedpriv.rounds.query import Query
from fedpriv.rounds.silo_context import Silo, stream_prefix
from fedpriv.training.contributions import Contributions, ContributionStats

if TYPE_CHECKING:
    import torch


def one_row(
    job: LocalJob,
    silo: Silo,
    query: Query,
    *,
    stats: ContributionStats,
    bounds: np.ndarray | None,
    draw: Callable[[], np.ndarray],
    spent: Callable[[float], None],
) -> OneRow | None:
    """The job's contribution as a row, if it has at most one and compiled code trains it; else
    None. The arguments are fields of `OneRow`.

    Raises ConfigError where the training is refused.
    """
    training = job.training
    plain = query.asked.enforced and query.mechanism.mixing is None and query.n_most is None
    if training is None or not plain or job.pending is not None:
        return None
    data = silo.data
    chosen: list[int | None]
    if training.pooled:
        chosen = [None] if len(data.x) else []
    elif training.users is None:
        chosen = [*range(min(2, len(data.users)))]
    else:
        chosen = np.asarray(training.users, dtype=np.int64)[:2].tolist()
    if len(chosen) > 1 or query.size != len(training.start):
        return None
    from fedpriv.training.one_user_silos import OneUser, shared_training

    shared = shared_training(
        training,
        model=silo.model,
        data=data,
        task=silo.task,
        execution=silo.execution,
        streams=silo.streams,
    )
    if shared is None:
        return None
    user = None
    for position in chosen:
        unit = silo.index if position is None else int(data.users[position])
        user = OneUser(data, silo.name, position, unit)
    return OneRow(query, shared, user, stats, bounds, draw, spent)


def bounded_matrix(rows: Sequence[OneRow]) -> tuple[list[int], torch.Tensor]:
    """Train the users of these silos, and bound their contributions.

    Returns the places in `rows` of the contributions, and the contributions, (k, size) float64.
    Rows without a user, outside of the sample or not finite have none, as in `bounded`.
    """
    import time

    import torch

    query = rows[0].query
    since = time.perf_counter()
    present = [row for row in rows if row.user is not None]
    users = [row.user for row in present if row.user is not None]
    deltas = np.empty((0, query.size), dtype=np.float32)
    if users:
        streams, prefix = query.streams, stream_prefix(query)
        deltas = rows[0].shared.run(users, streams=streams, round=query.round, prefix=prefix)
    for row in rows:
        row.spent((time.perf_counter() - since) / len(rows))
    units = np.array([user.unit for user in users], dtype=np.int64)
    block = Contributions(units, torch.from_numpy(deltas))
    found = bounded_rows(block, query, rows[0].bounds)
    counted = zip(found.rows, found.norms.tolist(), found.finite.tolist(), found.clipped.tolist())
    for place, norm, finite, clipped in counted:
        stats = present[place].stats
        stats.units += 1
        stats.nonfinite += not finite
        stats.clipped += clipped
        stats.norm_sum += norm if finite else 0.0
    places = [place for place, row in enumerate(rows) if row.user is not None]
    kept = found.rows[found.finite].tolist()
    vectors = found.vectors if found.finite.all() else found.vectors[found.finite]
    return [places[one] for one in kept], vectors
