"""The training loop: rounds, records, checkpoints."""

from __future__ import annotations

import time
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fedpriv.accountants.ledger import Ledger
from fedpriv.progress import Progress, summary
from fedpriv.results import RunFolder

if TYPE_CHECKING:
    from fedpriv.config import Experiment
    from fedpriv.simulation import RoundResult, Simulation

ALWAYS_UNCOVERED = (
    "hyper-parameters chosen on private data are not accounted",
    "splits, scaling and sub-sampling of the data set are not accounted",
    "metrics.csv holds non-private diagnostics",
)


def train(experiment: Experiment, config_yaml: str, path: Path, resume: bool = False) -> dict[str, Any]:
    """Run an experiment into folder `path`, or go on from its last checkpoint.

    Returns the last metrics row. Whatever can be wrong with the settings or the data is raised before the folder is
    touched; after that, a failure is recorded in status.json and raised again.
    """
    from fedpriv.simulation import prepare

    simulation = prepare(experiment)
    folder = RunFolder(path)
    if not resume:
        folder.create(config_yaml)
    try:
        last, ledger = _loop(simulation, folder, resume)
    except KeyboardInterrupt:
        folder.status(state="failed", reason=f"interrupted; resume={path} goes on")
        raise
    except Exception as error:
        folder.status(state="failed", reason=str(error) or type(error).__name__, traceback=traceback.format_exc())
        raise
    folder.status(state="done")
    summary(path, experiment, ledger, experiment.options.rounds)
    return last


def _loop(simulation: Simulation, folder: RunFolder, resume: bool) -> tuple[dict[str, Any], Ledger]:
    exp = simulation.experiment
    rounds = exp.options.rounds
    theta, done = simulation.theta0, -1
    ledger = Ledger(exp.accountant)
    if resume and (saved := folder.load_checkpoint()):
        done, state = saved
        theta = state["theta"]
    if resume:
        folder.rewind(done)
    for past in range(1, done + 1):
        ledger.record(simulation.plan(past).events)
    _opening_status(simulation, folder)
    row = _evaluated(0, simulation, theta) if done < 0 else {"round": done, **simulation.evaluate(theta)}
    if done < 0:
        folder.append("metrics.csv", [row])
        folder.save_checkpoint(0, {"theta": theta})
    with Progress(rounds, max(done, 0), exp.data.task.metric) as progress:
        for round in range(max(done, 0) + 1, rounds + 1):
            since = time.perf_counter()
            plan = simulation.plan(round)
            planned = time.perf_counter() - since
            result = simulation.run_round(plan, theta)
            step, theta = float(np.linalg.norm(result.theta - theta)), result.theta
            row = _record_round(folder, simulation, ledger, plan, result, step, planned)
            if round % exp.options.checkpoint_every == 0 or round == rounds:
                folder.save_checkpoint(round, {"theta": theta})
            progress.update(round, row, ledger)
    folder.save_model(simulation.parameters(theta))
    return row, ledger


def _record_round(folder, simulation, ledger, plan, result: RoundResult, step: float, planned: float) -> dict[str, Any]:
    options = simulation.experiment.options
    since = time.perf_counter()
    ledger.record(plan.events)
    folder.append("epsilon.csv", [_columns(row) for row in ledger.rows(plan.round)])
    accounted = time.perf_counter() - since
    since = time.perf_counter()
    evaluates = plan.round % options.evaluate_every == 0 or plan.round == options.rounds
    row = _evaluated(plan.round, simulation, result.theta, result.tally, step) if evaluates else {"round": plan.round}
    if evaluates:
        folder.append("metrics.csv", [row])
    evaluated = time.perf_counter() - since
    seconds = {"plan": planned, **result.seconds, "accounting": accounted, "evaluation": evaluated}
    folder.append("timings.csv", [{"round": plan.round, **seconds}])
    return row


def _evaluated(round: int, simulation: Simulation, theta: np.ndarray, tally=None, step: float | None = None) -> dict:
    """A metrics row: test metrics, and how long and how often clipped the contributions were."""
    values = simulation.evaluate(theta)
    finite = tally.units - tally.nonfinite if tally else 0
    return {
        "round": round,
        **values,
        "update_norm": step,
        "contribution_norm": tally.norm_sum / finite if finite else None,
        "clipped": tally.clipped / finite if finite else None,
        "contributions": tally.units if tally else None,
        "nonfinite": tally.nonfinite if tally else None,
    }


def _columns(row) -> dict[str, Any]:
    names = ("round", "observer", "unit", "adjacency", "method", "certified", "claimed")
    return {name: getattr(row, name) for name in names}


def _opening_status(simulation: Simulation, folder: RunFolder) -> None:
    import torch

    import fedpriv

    exp = simulation.experiment
    opening = Ledger(exp.accountant)
    opening.record(simulation.plan(1).events)
    private = exp.options.randomness == "system"
    seeded = "seeded noise and sampling: whoever knows the seed can subtract them; randomness=system draws real ones"
    folder.status(
        state="running",
        rounds=exp.options.rounds,
        label=simulation.algo.label,
        metric=exp.data.task.metric,
        delta=exp.accountant.delta,
        randomness=exp.options.randomness,
        dp_valid=private and exp.mechanism.clips,
        assumptions=opening.assumptions(),
        not_covered=[*ALWAYS_UNCOVERED, *([] if private else [seeded])],
        device=simulation.device,
        parameters=len(simulation.theta0),
        versions={"fedpriv": fedpriv.__version__, "torch": torch.__version__},
        reason=None,
        traceback=None,
    )
