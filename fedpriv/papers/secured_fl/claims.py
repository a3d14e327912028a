"""The claims of the SecureD-FL paper, and what a computation finds.

B. Jeon, S. M. Ferdous, M. R. Rahman, A. Walid, Privacy-preserving decentralized aggregation for
federated learning.
"""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from fedpriv.aggregation.admm.knowledge import first_leak
from fedpriv.aggregation.admm.peer import Averaging
from fedpriv.aggregation.admm.penalty import PRESETS, Penalty
from fedpriv.reports.canvas import plt, save
from fedpriv.topology.design import designed
from fedpriv.topology.groups import partition

PEERS = 9
COORDINATES = 500
SPREAD = 0.05
"""Standard deviation of synthetic weights."""


def averages(
    vectors: np.ndarray,
    penalty: Penalty,
    iterations: int,
    *,
    rng: np.random.Generator,
    dtype: type[Any] = np.float64,
) -> Iterator[tuple[float, float, float]]:
    """Average vectors (n, d) by ADMM.

    penalty: rho by iteration.
    iterations: how many.
    rng: draws the peers' first duals.
    dtype: precision of the computation.

    Yields, after each iteration, the largest coordinate of sum(lambda), the norm of the average's
    error, and the mean square of this error over coordinates.
    """
    peers = [
        Averaging(vector.astype(dtype), rng.random(len(vector)).astype(dtype)) for vector in vectors
    ]
    for iteration in range(1, iterations + 1):
        rho = dtype(penalty.at(iteration))
        z = np.mean([peer.message(rho) for peer in peers], axis=0, dtype=dtype)
        for peer in peers:
            peer.take(z, rho)
        error = z.astype(np.float64) - vectors.mean(axis=0)
        dual = np.sum([peer.dual for peer in peers], axis=0)
        yield float(np.abs(dual).max()), float(np.linalg.norm(error)), float(np.mean(error**2))


def safe_iterations(n: int, size: int | None = None) -> tuple[int, int | None]:
    """Safe iterations by the paper, 2 t_g - 1, and the true number against one curious peer.

    n: number of peers.
    size: of the designed groups; None puts all peers in one group.

    The true number is None if even twice the paper's number reveals no model.
    """
    partitions = (partition([range(n)]),) if size is None else designed(n, size)
    claimed = 2 * len(partitions) - 1
    leak = first_leak(partitions, Penalty(1.0), 2 * claimed)
    return claimed, None if leak is None else leak - 1


def claims() -> pd.DataFrame:
    """The paper's claims: by their place in the paper, what it says, whether it holds, and the
    numbers that show it."""
    rng = np.random.default_rng(0)
    weights = rng.normal(0, SPREAD, (PEERS, COORDINATES))
    fixed = list(averages(weights, Penalty(1.0), 4, rng=deepcopy(rng)))
    iterations, tuned = PRESETS["tuned_4"]
    (*_, doubles), (*_, floats) = (
        averages(weights, tuned, iterations, rng=deepcopy(rng), dtype=dtype)
        for dtype in (np.float64, np.float32)
    )
    start = float(np.linalg.norm(weights.mean(axis=0)))
    nine = safe_iterations(9, 3)
    fifteen = safe_iterations(15, 3)
    _, all_to_all = safe_iterations(9)
    rows = {
        "Lemma II.1": (
            "sum of lambda is 0 after every iteration",
            "yes",
            f"at most {fixed[0][0]:.0e}",
        ),
        "Lemma II.2": (
            "the error shrinks by rho / (rho + 2) in every iteration",
            "not in the first",
            f"rho = 1: {fixed[0][1] / start:.1f} in the first, {fixed[1][1] / fixed[0][1]:.3f} "
            "in the second",
        ),
        "Lemma III.1": (
            "all-to-all gives models away after 2 iterations",
            "yes",
            f"safe: {all_to_all}",
        ),
        "Theorem III.2": (
            "2 t_g - 1 iterations are safe",
            "no",
            f"n = 9: {nine[1]}, not {nine[0]}; n = 15: {fifteen[1]}, not {fifteen[0]}",
        ),
        "Section VI": (
            "errors below 1e-13 after 4 iterations",
            "in double precision",
            f"mean squared error {doubles[2]:.0e} in float64, {floats[2]:.0e} in float32, "
            "synthetic weights",
        ),
        "Abstract": (
            "accuracy falls by up to 0.73 %",
            "relatively",
            "76.64 to 76.08: 0.56 points",
        ),
    }
    found = pd.DataFrame.from_dict(rows, orient="index", columns=["says", "holds", "found"])
    return found.rename_axis("place")


def draw(folder: Path, profile: str) -> None:
    """Write the claims as claims.csv, and as a picture.

    profile: has no effect here.
    """
    table = claims().reset_index()
    table.to_csv(folder / "claims.csv", index=False)
    figure, axis = plt.subplots(figsize=(12, 0.6 + 0.42 * len(table)), layout="constrained")
    axis.axis("off")
    drawn = axis.table(
        table.to_numpy().tolist(), colLabels=table.columns.tolist(), loc="center", cellLoc="left"
    )
    drawn.auto_set_font_size(False)
    drawn.set_fontsize(9)
    drawn.auto_set_column_width(list(range(len(table.columns))))
    drawn.scale(1, 1.5)
    save(figure, folder / "figure.png")
