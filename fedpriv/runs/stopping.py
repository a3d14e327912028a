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

from fedpriv.accountants.events import RELEASED_MODEL
from fedpriv.algorithms.evaluation import BEST, MODEL, ROUNDS, Evaluation
from fedpriv.runs.run_evaluation import TEST_PERSON, score_of
from fedpriv.runs.training_loop import TrainingLoop

STOPPING = "stopping"
"""Folder of the evaluations, in the run's folder."""

Rounds = Generator[TrainingLoop | None, None, None]
"""A run: None before it writes anything, then its loop before each round and after the last."""


def until_no_better(training: Rounds, evaluations: Rounds) -> None:
    """Run a training and its evaluations."""
    with closing(training), closing(evaluations):
        next(training), next(evaluations)  # both are checked and paid before either has a folder
        run, scored = next(training), next(evaluations)
        assert run is not None
        assert scored is not None
        evaluation, plan = scored.prepared.algo, scored.prepared.plan
        assert isinstance(evaluation, Evaluation)
        stop, metric = run.experiment.options.stop, score_of(run.experiment)

        def choose() -> int:
            """Release the best model so far. Returns the number of its evaluation; 0: none."""
            best = evaluation.best(metric, scored.state, plan)
            if best:
                column = evaluation.columns(scored.state)[best - 1]
                run.model = scored.state.slots[MODEL if best == scored.number else BEST]
                run.scores = evaluation.in_words(column, scored.state, plan)
                about = f"best private {metric} of {scored.number}, in {STOPPING}"
                run.note = f"the model of {column} is released: the {about}"
            return best

        best = choose()
        while not run.ending:
            last = scored.state.slots[ROUNDS].max()
            if run.number >= last + stop.every and not scored.ending:
                model = run.prepared.algo.output(run.state)
                before = model if run.model is None else run.model
                scored.state = evaluation.of_model(scored.state, run.number, model, before)
                next(evaluations)
                scored.records.writer.finish()  # no training goes on before its score is kept
                best = choose()
            elif run.number == run.experiment.options.rounds:
                break
            elif scored.ending:
                run.stop(f"its evaluations have ended: {scored.ending}")
            elif best and scored.number - best >= stop.patience:
                better = evaluation.columns(scored.state)[best - 1]
                run.stop(f"no evaluation since {better} was better")
            else:
                next(training)
        if scored.number < evaluation.models and not scored.ending:
            scored.stop("the training has ended")
        for _ in evaluations:
            pass
        seen = (row for row in scored.rows if row.observer == RELEASED_MODEL)
        run.tested = [replace(row, unit=TEST_PERSON) for row in seen]
        for _ in training:
            pass
