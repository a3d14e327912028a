"""`fedpriv epsilon`: what settings cost, without training.

One configuration is a table of its observers, several are a row each. `--out` writes the unrounded
numbers into a file, `--json` prints them.
"""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from omegaconf import DictConfig
from rich.console import Console

from fedpriv.accountants.ledger import EpsilonRow, headline
from fedpriv.accountants.table import epsilon_table
from fedpriv.aggregation.epsilon_target import beyond_target, noise_text
from fedpriv.errors import ConfigError, require
from fedpriv.runs.epsilon_forecast import EpsilonForecast, calibrations, milestones
from fedpriv.runs.folder import LEFT_OUT, read_status
from fedpriv.runs.progress import CHARGED_TWICE
from fedpriv.runs.stored_config import rounds_repeated, stored_experiment
from fedpriv.settings.compose import CommandLine, compose_jobs
from fedpriv.settings.experiment import build
from fedpriv.settings.help import conf_dir
from fedpriv.util.durable_files import replace_file
from fedpriv.util.wide_console import wide_console


@dataclass(frozen=True)
class Cost:
    """What one configuration costs.

    words: its overrides on the command line.
    forecast: its plan.
    repeated: round: attempts that a run has not recorded.
    """

    words: tuple[str, ...]
    forecast: EpsilonForecast
    repeated: Mapping[int, int]

    @cached_property
    def rows(self) -> list[EpsilonRow]:
        """Epsilons after 1, 10, 100, ... rounds and after the last one."""
        return self.forecast.rows_at(milestones(self.rounds), self.repeated)

    @property
    def rounds(self) -> int:
        return self.forecast.exp.options.rounds

    @property
    def last(self) -> list[EpsilonRow]:
        """Epsilons after the last round."""
        return [row for row in self.rows if row.round == self.rounds]

    @property
    def assumptions(self) -> dict[tuple[str, str], tuple[str, ...]]:
        """The assumptions of each observer's certificate, by observer and unit."""
        return {(row.observer, row.protects): row.assumptions for row in self.rows}

    @property
    def not_covered(self) -> tuple[str, ...]:
        """What no certificate of the settings covers."""
        exp = self.forecast.exp
        return (*exp.data.not_covered, *exp.allocator.not_covered)

    @property
    def unit(self) -> str:
        """What the headline epsilon protects: users if there is a certificate for users."""
        units = [row.unit for row in self.last]
        return "user" if "user" in units else units[0]

    def headline(self, observer: str) -> float:
        """The epsilon by which an observer is known, of `unit` after all rounds."""
        return headline(self.last, observer)

    def record(self) -> dict[str, Any]:
        """Everything as plain values. An epsilon without a bound is null."""
        exp = self.forecast.exp
        target = self.forecast.target
        return {
            "overrides": list(self.words),
            "method": exp.algo.label,
            "rounds": self.rounds,
            "delta": exp.accountant.delta,
            "observer": exp.algo.headline_observer,
            "noise": self.forecast.plan.noise_multipliers,
            "target": asdict(target) if target else None,
            "repeated_rounds": dict(self.repeated),
            "not_covered": list(self.not_covered),
            "epsilons": [
                asdict(row)
                | {"certified": _bounded(row.certified), "claimed": _bounded(row.claimed)}
                for row in self.rows
            ],
        }


def main(args: list[str]) -> None:
    """Print or write the costs of the command line's configurations."""
    words, as_json, out = _flags(args)
    line = CommandLine.parse(words)
    jobs = compose_jobs(line, conf_dir())
    costs = [_cost(config, line, len(jobs)) for config in jobs]
    if out is not None:
        _write(out, costs)
    if as_json:
        print(_json(costs), end="")
        return
    console = wide_console()
    if len(costs) == 1:
        _show(console, costs[0])
    else:
        _compare(console, costs)
    if out is not None:
        console.print(f"Written: {out}", soft_wrap=True)


def _flags(args: Sequence[str]) -> tuple[list[str], bool, Path | None]:
    """The words without --json and --out, and what these say."""
    words: list[str] = []
    as_json = False
    out: Path | None = None
    left = iter(args)
    for word in left:
        name, equals, value = word.partition("=")
        if word == "--json":
            as_json = True
        elif name == "--out":
            out = Path(value if equals else next(left, ""))
            suffixes = ", ".join(FORMATS)
            require(out.suffix in FORMATS, "--out", out, f"a file that ends in {suffixes}")
        else:
            words.append(word)
    return words, as_json, out


def _cost(config: DictConfig, line: CommandLine, jobs: int) -> Cost:
    """The cost of one job. `resume=folder` adds rounds that the run in the folder has repeated."""
    repeated: dict[int, int] = {}
    if config.resume is None:
        exp = build(config)
    else:
        folder = str(config.resume)
        exp, _ = stored_experiment(line, folder, jobs)
        repeated = rounds_repeated(Path(folder), system=exp.options.system)
        # A silo knows a larger share of the noise of fewer, and no file says since which round.
        lost = read_status(Path(folder)).get(LEFT_OUT)
        names = ", ".join(map(str, lost)) if isinstance(lost, list) else lost
        allowed = f"a run with all its silos (without {names}, epsilon.csv has its epsilons)"
        require(not lost, "resume", folder, allowed)
    words = tuple(str(word) for word in config.hydra.overrides.task)
    return Cost(words, EpsilonForecast.of(exp), repeated)


def _show(console: Console, cost: Cost) -> None:
    """One configuration: a row for each observer and method."""
    exp = cost.forecast.exp
    console.print(epsilon_table(cost.rows, exp.accountant.delta))
    _line(console, f"noise multiplier: {noise_text(cost.forecast.plan.noise_multipliers)}")
    if cost.repeated:
        _line(console, CHARGED_TWICE.format(sum(cost.repeated.values())))
    if cost.forecast.target:
        _line(console, cost.forecast.target.text)
        for note in beyond_target(cost.last, cost.forecast.target):
            _line(console, note)
    if exp.accountant.budget is not None:
        for text in calibrations(cost.forecast, exp.accountant.budget):
            _line(console, text)
    _show_assumptions(console, [cost])


def _compare(console: Console, costs: Sequence[Cost]) -> None:
    """Several configurations: a row each."""
    from rich.table import Table

    swept = _swept(costs)
    seen = list(dict.fromkeys(row.observer for cost in costs for row in cost.last))
    deltas = {cost.forecast.exp.accountant.delta for cost in costs}
    budgets = any(cost.forecast.exp.accountant.budget for cost in costs)
    at = f"at delta = {', '.join(f'{delta:g}' for delta in sorted(deltas))}"
    table = Table(title=f"certified epsilon {at}, after all rounds")
    for name in (*(key for key, _ in swept), "rounds", "noise", "unit"):
        table.add_column(name, overflow="fold")
    for observer in seen:
        table.add_column(observer, justify="right")
    if budgets:
        table.add_column("within the budget", overflow="fold")
    for number, cost in enumerate(costs):
        observers = {row.observer for row in cost.last}
        cells = [column[number] for _, column in swept]
        cells += [f"{cost.rounds}", noise_text(cost.forecast.plan.noise_multipliers), cost.unit]
        cells += [_text(cost.headline(name)) if name in observers else "" for name in seen]
        budget = cost.forecast.exp.accountant.budget
        if budgets:
            cells.append("\n".join(calibrations(cost.forecast, budget)) if budget else "")
        table.add_row(*cells)
    console.print(table)
    for text in dict.fromkeys(target.meaning for cost in costs if (target := cost.forecast.target)):
        _line(console, text)
    _show_assumptions(console, costs)


def _swept(costs: Sequence[Cost]) -> list[tuple[str, list[str]]]:
    """The keys whose values differ, with the value of each configuration; not the number of rounds,
    which has a column of its own."""
    values = [dict(word.split("=", 1) for word in cost.words if "=" in word) for cost in costs]
    keys = list(dict.fromkeys(key for own in values for key in own))
    columns = [(key, [own.get(key, "") for own in values]) for key in keys]
    return [(key, column) for key, column in columns if key != "rounds" and len(set(column)) > 1]


def _show_assumptions(console: Console, costs: Sequence[Cost]) -> None:
    """Each assumption once: first those of all certificates, then those of some."""
    found: dict[str, dict[str, None]] = {}
    everywhere: set[str] = set()
    for number, cost in enumerate(costs):
        for (observer, unit), texts in cost.assumptions.items():
            who = f"{observer}, {unit}"
            everywhere.add(f"{number} {who}")
            for text in texts:
                found.setdefault(text, {})[f"{number} {who}"] = None
    shared = [text for text, whose in found.items() if len(whose) == len(everywhere)]
    if shared:
        console.print("Every certificate assumes:")
    for text in shared:
        _line(console, f"  - {text}")
    by_whom: dict[str, list[str]] = {}
    for text, whose in found.items():
        if text not in shared:
            names = dict.fromkeys(who.split(" ", 1)[1] for who in whose)
            by_whom.setdefault("; ".join(names), []).append(text)
    for names_of, own in by_whom.items():
        _line(console, f"{names_of}:")
        for text in own:
            _line(console, f"  - {text}")
    for text in dict.fromkeys(text for cost in costs for text in cost.not_covered):
        _line(console, f"not covered: {text}")


def _line(console: Console, text: str) -> None:
    console.print(text, markup=False, soft_wrap=True)


def _text(epsilon: float) -> str:
    return "∞" if math.isinf(epsilon) else f"{epsilon:.4f}"


def _bounded(epsilon: float | None) -> float | None:
    return None if epsilon is None or math.isinf(epsilon) else epsilon


def _json(costs: Sequence[Cost]) -> str:
    return json.dumps([cost.record() for cost in costs], indent=2, allow_nan=False) + "\n"


def _table(costs: Sequence[Cost]) -> tuple[list[str], list[list[str]]]:
    """Unrounded: of one configuration a row for each round, observer and method; of several a row
    for each, with the certified epsilon of each observer after all rounds."""
    return _long_table(costs[0]) if len(costs) == 1 else _wide_table(costs)


def _long_table(cost: Cost) -> tuple[list[str], list[list[str]]]:
    fields = ("round", "observer", "unit", "group", "adjacency", "method", "certified", "claimed")
    noise = noise_text(cost.forecast.plan.noise_multipliers)
    values = [[getattr(row, name) for name in fields] for row in cost.rows]
    rows = [[noise, *("" if value is None else str(value) for value in own)] for own in values]
    return ["noise", *fields], rows


def _wide_table(costs: Sequence[Cost]) -> tuple[list[str], list[list[str]]]:
    swept = _swept(costs)
    seen = list(dict.fromkeys(row.observer for cost in costs for row in cost.last))
    rows = []
    for number, cost in enumerate(costs):
        own = [column[number] for _, column in swept]
        noise = noise_text(cost.forecast.plan.noise_multipliers)
        decisive = [row.adjacency for row in cost.last if row.unit == cost.unit]
        adjacency = "; ".join(dict.fromkeys(decisive))
        delta = str(cost.forecast.exp.accountant.delta)
        observers = {row.observer for row in cost.last}
        epsilons = [str(cost.headline(name)) if name in observers else "" for name in seen]
        rows.append([*own, str(cost.rounds), noise, cost.unit, adjacency, delta, *epsilons])
    keys = [key for key, _ in swept]
    return [*keys, "rounds", "noise", "unit", "adjacency", "delta", *seen], rows


def _csv(costs: Sequence[Cost]) -> str:
    text = io.StringIO()
    columns, rows = _table(costs)
    csv.writer(text, lineterminator="\n").writerows([columns, *rows])
    return text.getvalue()


def _markdown(costs: Sequence[Cost]) -> str:
    columns, rows = _table(costs)
    lines = [columns, ["---"] * len(columns), *rows]
    return "".join("| " + " | ".join(c.replace("|", "\\|") for c in row) + " |\n" for row in lines)


FORMATS: dict[str, Callable[[Sequence[Cost]], str]] = {
    ".json": _json,
    ".csv": _csv,
    ".md": _markdown,
}
"""Writer of each file suffix."""


def _write(out: Path, costs: Sequence[Cost]) -> None:
    """Raises ConfigError when the file cannot be written."""
    try:
        replace_file(out, FORMATS[out.suffix](costs).encode())
    except OSError as error:
        raise ConfigError("--out", out, f"a file that can be written ({error.strerror})") from error
