"""Progress while a run goes on, and its results at the end. Only the results go to stdout."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bar
from rich.table import Table

from fedpriv.accountants.ledger import EpsilonRow, epsilon_table
from fedpriv.runs.tables import METRICS, STATISTICS, UTILITY, Tables
from fedpriv.runtime.utility import ALL, MODEL, REFERENCES, TRIVIAL
from fedpriv.settings.experiment import Experiment
from fedpriv.util.consoles import HarmlessConsole, wide_console
from fedpriv.util.logs import LOGGER
from fedpriv.util.printing import say

PIPED_SECONDS = 30.0
"""Without a terminal, a round that ends this many seconds after the last line is shown as well."""

OnRound = Callable[[int], None]
"""Is told the number of completed rounds."""
VALID = (
    "Valid (dp_valid): the noise is real, contributions are bounded, the released model has a "
    "certificate, and nothing in it was read off the records without noise."
)
CHARGED_TWICE = (
    "Rounds repeated after an interruption: {}. Each attempt is charged, so that a target or a "
    "budget can end the run earlier."
)


def time_left(seconds: float) -> str:
    """Seconds as text for a prediction."""
    for unit, length in (("h", 3600), ("min", 60)):
        if seconds >= 2 * length:
            return f"about {seconds / length:.0f} {unit} left"
    return f"about {math.ceil(seconds)} s left"


class Progress:
    """A bar with loss, metric, epsilon and the time left. Without a terminal, a line after the
    first round, every tenth of the run, and twice a minute. All of it is also logged.

    rounds: rounds of the run.
    completed: rounds completed before.
    metric: name of the task's metric.
    quiet: show nothing.
    on_round: called with the number of completed rounds, at the start and after each round.
    """

    def __init__(
        self,
        rounds: int,
        completed: int,
        metric: str,
        *,
        quiet: bool = False,
        on_round: OnRound | None = None,
    ) -> None:
        self.rounds = rounds
        self.completed = completed
        self.on_round = on_round or (lambda number: None)
        self._shown = time.monotonic()
        self.metric = metric
        self.quiet = quiet
        self.console = HarmlessConsole(stderr=True)
        self.terminal = self.console.is_terminal
        self.bar = Bar(
            TextColumn("round"),
            MofNCompleteColumn(),
            BarColumn(bar_width=24),
            TextColumn("{task.description}"),
            TimeRemainingColumn(),
            console=self.console,
            disable=quiet or not self.terminal,
        )
        self.task = self.bar.add_task("", total=rounds, completed=completed)
        self.text = ""

    def __enter__(self) -> Progress:
        self.on_round(self.completed)
        self.bar.start()
        return self

    def __exit__(self, *failure: object) -> None:
        self.bar.stop()

    def update(self, number: int, row: dict[str, Any], epsilon: float | None) -> None:
        """Show round `number`. If it was not evaluated, repeat the last metrics."""
        self.on_round(number)
        if epsilon is not None:
            known = [one for one in ("loss", self.metric) if one in row]
            values = [f"{one} {row[one]:.4f}" for one in known]
            self.text = "  ".join([*values, f"epsilon {epsilon:.4g}"])
            LOGGER.info("round %d/%d  %s", number, self.rounds, self.text)
        if self.quiet:
            return
        self.bar.update(self.task, completed=number, description=self.text)
        if not self.terminal and self._due(number):
            say(f"round {number}/{self.rounds}  {self.text}", file=sys.stderr, flush=True)

    def _due(self, number: int) -> bool:
        """Whether round `number` has a line of its own where no terminal shows the bar."""
        named = number in (self.completed + 1, self.rounds)
        now = time.monotonic()
        late = now - self._shown >= PIPED_SECONDS
        due = named or late or number % max(1, self.rounds // 10) == 0
        if due:
            self._shown = now
        return due

    def say(self, text: str) -> None:
        """Print a line above the bar."""
        LOGGER.info(text)
        if not self.quiet:
            self.console.print(text, soft_wrap=True)


MARGIN = 0.02
"""A model that is less above one without information is as good as that one."""


def hardly_better(model: float, trivial: float) -> bool:
    """Whether a model's metric is that of one without information."""
    return model < trivial + MARGIN


def at_chance(row: Mapping[str, str], algo: object) -> str:
    """What to turn where the model is hardly better than the trivial one; empty where it is.

    row: of utility.csv, for the metric that is judged.
    """
    own, trivial = row.get(MODEL), row.get(TRIVIAL)
    if not own or not trivial or not hardly_better(float(own), float(trivial)):
        return ""
    keys = [f"algo.{key}" for key in ("global_lr", "clip", "local_lr") if hasattr(algo, key)]
    ways = ", ".join((*keys, "rounds", "accountant.target"))
    return (
        f"At chance: {row['metric']} {float(own):.4f} of the model is not clearly above "
        f"{float(trivial):.4f} of the trivial model; turn {ways}"
    )


def _shown(value: str | None) -> str:
    if not value or value.isdecimal():
        return value or ""
    return f"{float(value):.4f}"


def summary(
    folder: Path,
    experiment: Experiment,
    epsilons: list[EpsilonRow],
    *,
    ending: str | None,
    repeated: int,
    notes: Sequence[str] = (),
    private: bool = False,
) -> None:
    """Print the metrics or statistics, the epsilons of each observer, and where the files are.

    epsilons: rows of the last round.
    ending: why the run ended early, if it did.
    repeated: attempts at rounds that are charged but not recorded.
    notes: further lines.
    private: whether the released model is private (dp_valid).
    """
    console = wide_console()
    if experiment.algo.releases_model:
        _show_metrics(console, folder, experiment)
    else:
        _show_statistics(console, folder)
    console.print(epsilon_table(epsilons, experiment.accountant.delta))
    if repeated:
        console.print(CHARGED_TWICE.format(repeated))
    if ending:
        console.print(f"Ended early: {ending}", soft_wrap=True)
    for note in notes:
        console.print(note, soft_wrap=True)
    if experiment.options.randomness == "simulation":
        console.print(
            "Simulation: noise comes from a seed, so this model is NOT private "
            "(use randomness=system)."
        )
    for text in experiment.data.read_without_noise:
        console.print(f"NOT private: {text}", soft_wrap=True)
    if private:
        console.print(VALID, soft_wrap=True)
    console.print(f"Results: {folder}", soft_wrap=True)


def _show_statistics(console: Console, folder: Path) -> None:
    """Print statistics.csv. Intervals include the noise."""
    table = Table("column", "statistic", "of")
    for head in ("value", "95 % low", "high"):
        table.add_column(head, justify="right")
    for row in Tables(folder).rows(STATISTICS):
        numbers = (f"{float(row[name]):.5g}" for name in ("value", "low", "high"))
        table.add_row(row["column"], row["statistic"], row["of"], *numbers)
    console.print(table)


def _show_metrics(console: Console, folder: Path, experiment: Experiment) -> None:
    """Print first and last metrics."""
    rows = Tables(folder).rows(METRICS)
    table = Table(title=f"{experiment.algo.label} on {type(experiment.data).__name__}")
    table.add_column("")
    first, last = rows[0], rows[-1]
    found = [row for row in Tables(folder).rows(UTILITY) if row["part"] == ALL]
    final = {row["metric"]: row for row in found}
    references = [name for name in REFERENCES if any(row[name] for row in found)]
    for head in (*(f"round {row['round']}" for row in (first, last)), *references):
        table.add_column(head.replace("_", " "), justify="right")
    # norms are empty at round 0
    known = [name for name, start in first.items() if name != "round" and start]
    for name in dict.fromkeys([*known, *final]):
        own = final.get(name, {})
        values = (first.get(name), last.get(name) or own.get(MODEL), *map(own.get, references))
        table.add_row(name, *map(_shown, values))
    if table.rows:
        console.print(table)
    if chance := at_chance(final.get(experiment.data.task.metric, {}), experiment.algo):
        console.print(chance, soft_wrap=True)
