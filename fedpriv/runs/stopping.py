"""Early stopping by private scores of test persons, and the best round by them.

Beside the training goes a run of `algo=evaluation`, in the folder `stopping` of its own folder.
Each of its rounds evaluates the model that the training has released by then, so that its noise,
its certificate and its charges are those of a run whose number of rounds is fixed: one evaluation
every `stop.every` planned rounds, all together for `stop.target`. Which model is released, and when
the run ends, follows from released models and charged scores alone.

When a run ends is no public number, so that its epsilons are those of all planned rounds. A ledger
is a filter, and is charged the rounds that were begun.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf

from fedpriv.accountants.events import RELEASED_MODEL
from fedpriv.algorithms.evaluation import BEST, MODEL, Evaluation
from fedpriv.errors import require
from fedpriv.runs.run_evaluation import RunEvaluation, settings_beside
from fedpriv.runs.training_loop import TrainingLoop
from fedpriv.settings.experiment import Experiment

STOPPING = "stopping"
"""Folder of the evaluations, in the run's folder."""

Rounds = Generator[TrainingLoop, None, None]


def stopping_evaluation(experiment: Experiment, config_yaml: str, path: Path) -> RunEvaluation:
    """The run of the evaluations, one a round. Raises ConfigError for settings that do not fit
    together."""
    options, stop, limit = experiment.options, experiment.options.stop, experiment.accountant.budget
    assert stop.target is not None
    allowed = "null: early stopping costs all planned rounds; accountant.target bounds them"
    require(limit is None, "accountant.budget", limit, allowed)
    after = list(range(stop.every, options.rounds + 1, stop.every))
    given = settings_beside(experiment, stop.target, stop.population, "stop.")
    given |= {"algo.after": str(after), "rounds": str(len(after))}
    stored: Any = OmegaConf.to_container(OmegaConf.create(config_yaml))
    found = RunEvaluation.of(path, stored, given, planned=True, trust_code=True)
    evaluation = found.experiment.algo
    assert isinstance(evaluation, Evaluation)
    metric = metric_of(experiment)
    require(metric in evaluation.scores, "stop.metric", metric, ", ".join(evaluation.scores))
    return found


def metric_of(experiment: Experiment) -> str:
    """The score that is compared."""
    return experiment.options.stop.metric or experiment.data.task.metric


def until_no_better(training: Rounds, evaluations: Rounds) -> None:
    """Run a training and its evaluations."""
    with closing(training), closing(evaluations):
        run, scored = next(training), next(evaluations)
        evaluation, plan = scored.prepared.algo, scored.prepared.plan
        assert isinstance(evaluation, Evaluation)
        stop, metric = run.experiment.options.stop, metric_of(run.experiment)
        rounds, planned = run.experiment.options.rounds, len(evaluation.after)

        def choose() -> int:
            """Release the best model so far. Returns the number of its evaluation; 0: none."""
            best = evaluation.best(metric, scored.state, plan)
            if best:
                run.model = scored.state.slots[MODEL if best == scored.number else BEST]
                about = f"best private {metric} of {scored.number}, in {STOPPING}"
                run.note = f"the model of {evaluation.columns[best - 1]} is released: the {about}"
            return best

        best = choose()
        while not run.ending:
            if run.number >= (scored.number + 1) * stop.every and not scored.ending:
                model = run.prepared.algo.output(run.state)
                slots = {MODEL: model, BEST: model if run.model is None else run.model}
                scored.state = scored.state.with_params(scored.state.params, **slots)
                next(evaluations)
                best = choose()
            elif run.number == rounds:
                break
            elif scored.ending:
                run.stop(f"its evaluations have ended: {scored.ending}")
            elif best and scored.number - best >= stop.patience:
                run.stop(f"no evaluation since {evaluation.columns[best - 1]} was better")
            else:
                next(training)
        if scored.number < planned and not scored.ending:
            scored.stop("the training has ended")
        for _ in evaluations:
            pass
        seen = (row for row in scored.rows if row.observer == RELEASED_MODEL)
        run.tested = [replace(row, unit="test person") for row in seen]
        for _ in training:
            pass
