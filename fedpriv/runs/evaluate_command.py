"""`fedpriv evaluate`: private metrics of a released model, as a run of one query over test persons.

    fedpriv evaluate outputs/visits target=1
    fedpriv evaluate outputs/visits target=1 ledger=clinic.jsonl population=tests

    target=EPSILON             what all metrics together may cost each test person
    bins=5                     of the probabilities, for calibration and AUC
    most_loss=3                larger losses of a record count as this
    ledger=FILE population=X   whose budget it is charged to

Other words are settings of a run, such as `accountant.delta`. Data set, network and seed are those
of the run in the folder, and its model is a constant. The certificate is about the test
population, whose budget a ledger keeps by itself. Noise comes from the operating system.
"""

from __future__ import annotations

from pathlib import Path

from fedpriv.runs.loop import train
from fedpriv.runs.run_evaluation import RunEvaluation
from fedpriv.settings.compose import one_line_errors


@one_line_errors()
def evaluate(args: list[str], *, quiet: bool = False) -> Path:
    """Evaluate the run in the folder that the first word names, and print its metrics. Returns the
    evaluation's folder."""
    asked = RunEvaluation.parse(args)
    train(asked.experiment, asked.yaml, asked.folder, words=args, quiet=quiet)
    return asked.folder
