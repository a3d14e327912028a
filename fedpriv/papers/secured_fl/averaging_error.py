"""Fig. 4 of Jeon et al. (SecureD-FL): how far averages by ADMM are from true ones, on models in
training.

Peers train by federated averaging; every fifth round the models that they have trained are averaged
with 1 to 7 iterations of the tuned schedules too, in double and in single precision.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from fedpriv.aggregation.admm.averaging import Averaging
from fedpriv.aggregation.admm.penalty import PRESETS, Penalty
from fedpriv.papers.quick_profiles import profile_words
from fedpriv.papers.secured_fl.peer_accuracy import TITLES, femnist_words
from fedpriv.reports.canvas import plt
from fedpriv.reports.number_table import write_table
from fedpriv.runtime import PreparedRun, prepare
from fedpriv.settings.compose import one_experiment
from fedpriv.util.stopwatch import Stopwatch

EVERY = 5
CLAIM = 1e-13
PRECISIONS = {"float64": np.float64, "float32": np.float32}


def draw(folder: Path, profile: str) -> bool:
    """Write errors.csv and figure.png."""
    words = [
        "experiment=secured_fl/fig4",
        *femnist_words(),
        *profile_words("secured_fl/fig4", profile),
    ]
    exp = one_experiment(*words)
    rng = np.random.default_rng(exp.options.seed)
    errors = dict[tuple[str, int], list[float]]()
    with prepare(exp) as prepared:
        for models in checkpoints(prepared, exp.options.rounds):
            for name, dtype in PRECISIONS.items():
                for iterations in range(1, 8):
                    penalty = PRESETS[f"tuned_{iterations}"][1]
                    found = mean_square(models, penalty, iterations, rng=rng, dtype=dtype)
                    errors.setdefault((name, iterations), []).append(found)
    folder.mkdir(parents=True, exist_ok=True)
    rows = [
        (name, iterations, np.mean(found), len(found))
        for (name, iterations), found in errors.items()
    ]
    write_table(
        folder / "errors.csv",
        ("precision", "iterations", "mean squared error", "checkpoints"),
        rows,
    )
    figure, axis = plt.subplots(figsize=(6, 4.2), layout="constrained")
    for name in PRECISIONS:
        axis.plot(
            range(1, 8), [np.mean(errors[name, i]) for i in range(1, 8)], "o-", ms=4, label=name
        )
    axis.axhline(CLAIM, color="0.5", ls=":", label="1e-13, which the paper reports after 4")
    axis.set(
        yscale="log",
        xlabel="iterations, with the schedule tuned for them",
        ylabel="mean squared error",
    )
    title = f"{TITLES[type(exp.data).__name__](None)}, 9 peers"
    axis.set_title(f"{title}\nmean over {len(errors['float64', 1])} rounds", fontsize=10)
    axis.grid(alpha=0.3)
    axis.legend(fontsize=8.5)
    figure.savefig(folder / "figure.png", dpi=150)
    plt.close(figure)
    return True


def checkpoints(prepared: PreparedRun, rounds: int) -> Iterator[np.ndarray]:
    """The silos' models (n, d) of every fifth round."""
    state = prepared.state
    for number in range(1, rounds + 1):
        queries = prepared.queries(number)
        if number % EVERY == 0:
            yield state.params + np.stack(
                [_change(prepared, queries[0], state, silo) for silo in queries[0].invited]
            )
        result = prepared.run_round(queries, state)
        if result.aborted:
            raise RuntimeError(result.aborted)
        state = result.state


def _change(prepared: PreparedRun, query: Any, state: Any, silo: int) -> np.ndarray:
    alone = replace(query, invited=(silo,), n_summed=1)
    total, _ = prepared.exchange(alone, state, watch=Stopwatch(), lines=[])
    return total.vector


def mean_square(
    models: np.ndarray,
    penalty: Penalty,
    iterations: int,
    *,
    rng: np.random.Generator,
    dtype: type[Any],
) -> float:
    """Mean over coordinates of the squared error of the average of models (n, d), computed in this
    precision."""
    peers = [
        Averaging(model.astype(dtype), rng.random(len(model)).astype(dtype)) for model in models
    ]
    z = np.zeros(models.shape[1], dtype=dtype)
    for iteration in range(1, iterations + 1):
        rho = dtype(penalty.at(iteration))
        z = np.mean([peer.message(rho) for peer in peers], axis=0, dtype=dtype)
        for peer in peers:
            peer.take(z, rho)
    return float(np.mean((z.astype(np.float64) - models.mean(axis=0)) ** 2))
