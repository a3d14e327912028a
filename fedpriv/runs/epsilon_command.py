"""`fedpriv epsilon`: what settings cost, without training.

One configuration is a table of its observers, several are a row each. `--out` writes the unrounded
numbers into a file, `--json` prints them.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from omegaconf import DictConfig
from rich.console import Console

from fedpriv.accountants.ledger import EpsilonRow, epsilon_table, epsilon_text, headline
from fedpriv.aggregation.epsilon_target import beyond_target
from fedpriv.errors import require
from fedpriv.runs.epsilon_forecast import EpsilonForecast, bounded, calibrations
from fedpriv.runs.progress import CHARGED_TWICE
from fedpriv.runs.run_evaluation import TEST_PERSON, planned_evaluation
from fedpriv.runs.status import Status
from fedpriv.runs.stored_config import rounds_repeated, stored_experiment
from fedpriv.settings.compose import CommandLine, compose_jobs, one_line_errors
from fedpriv.settings.experiment import Experiment, build, resolved
from fedpriv.settings.words import conf_dir, writing
from fedpriv.util.consoles import wide_console
from fedpriv.util.durable_files import replace_file
from fedpriv.util.parsers import Parser
from fedpriv.util.printing import say


@one_line_errors()
def main(args: list[str]) -> None:
    """Print or write the costs of the command line's configurations."""
    parser = Parser("fedpriv epsilon", add_help=False, allow_abbrev=False)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--out", type=Path)
    own, words = parser.parse_known_args(args)
    out: Path | None = own.out
    if out is not None:
        known = f"a file that ends in {', '.join(FORMATS)}"
        require(out.suffix in FORMATS, "--out", out, known)
    line = CommandLine.parse(words)
    jobs = compose_jobs(line, conf_dir())
    costs = [_forecast(config, line, len(jobs)) for config in jobs]
    if out is not None:
        with writing(out):
            replace_file(out, FORMATS[out.suffix](costs).encode())
    if own.json:
        say(_json(costs), end="")
        return
    console = wide_console()
    if len(costs) == 1:
        _show(console, costs[0])
    else:
        _compare(console, costs)
    if out is not None:
        console.print(f"Written: {out}", soft_wrap=True)


def _forecast(config: DictConfig, line: CommandLine, jobs: int) -> EpsilonForecast:
    """The cost of one job. `resume=folder` adds rounds that the run in the folder has repeated."""
    words = tuple(str(word) for word in config.hydra.overrides.task)
    if config.resume is None:
        exp = build(config)
        return replace(EpsilonForecast.of(exp, words), tested=_tested(exp, resolved(config)))
    folder = str(config.resume)
    exp, stored = stored_experiment(line, folder, jobs)
    # A silo knows a larger share of the noise of fewer, and no file says since which round.
    status = Status.find(Path(folder))
    lost = ", ".join(status.left_out if status else ())
    allowed = f"a run with all its silos (without {lost}, epsilon.csv has its epsilons)"
    require(not lost, "resume", folder, allowed)
    repeated = rounds_repeated(Path(folder), system=exp.options.system)
    return replace(EpsilonForecast.of(exp, words, repeated), tested=_tested(exp, resolved(stored)))


def _tested(exp: Experiment, stored: Mapping[str, Any]) -> list[EpsilonRow]:
    """What `stop` costs test persons."""
    if exp.options.stop.target is None:
        return []
    evaluation = planned_evaluation(exp, stored).experiment
    return [replace(row, unit=TEST_PERSON) for row in EpsilonForecast.of(evaluation).last]


def _show(console: Console, cost: EpsilonForecast) -> None:
    """One configuration: a row for each observer and method."""
    exp = cost.exp
    console.print(epsilon_table(cost.shown, exp.accountant.delta))
    _line(console, f"noise multiplier: {cost.noise_text}")
    if cost.repeated:
        _line(console, CHARGED_TWICE.format(sum(cost.repeated.values())))
    if cost.target:
        _line(console, cost.target.text)
        for note in beyond_target(cost.last, cost.target):
            _line(console, note)
    if exp.accountant.budget is not None:
        for text in calibrations(cost, exp.accountant.budget):
            _line(console, text)
    _show_assumptions(console, [cost])


def _compare(console: Console, costs: Sequence[EpsilonForecast]) -> None:
    """Several configurations: a row each."""
    from rich.table import Table

    deltas = {cost.exp.accountant.delta for cost in costs}
    at = f"at delta = {', '.join(f'{delta:g}' for delta in sorted(deltas))}"
    table = Table(title=f"certified epsilon {at}, after all rounds")
    columns, rows = _wide_table(costs, epsilon_text)
    shown = [place for place, name in enumerate(columns) if name not in ("adjacency", "delta")]
    for place in shown:
        epsilon = place > columns.index("delta")
        table.add_column(
            columns[place],
            overflow="ellipsis" if epsilon else "fold",
            justify="right" if epsilon else "left",
        )
    budgets = [cost.exp.accountant.budget for cost in costs]
    if any(budgets):
        table.add_column("within the budget", overflow="fold")
    for cost, row, budget in zip(costs, rows, budgets):
        cells = [row[place] for place in shown]
        if any(budgets):
            cells.append("\n".join(calibrations(cost, budget)) if budget else "")
        table.add_row(*cells)
    console.print(table)
    for text in dict.fromkeys(target.meaning for cost in costs if (target := cost.target)):
        _line(console, text)
    _show_assumptions(console, costs)


def _swept(costs: Sequence[EpsilonForecast]) -> list[tuple[str, list[str]]]:
    """The keys whose values differ, with the value of each configuration; not the number of rounds,
    which has a column of its own."""
    values = [dict(word.split("=", 1) for word in cost.words if "=" in word) for cost in costs]
    keys = list(dict.fromkeys(key for own in values for key in own))
    columns = [(key, [own.get(key, "") for own in values]) for key in keys]
    return [(key, column) for key, column in columns if key != "rounds" and len(set(column)) > 1]


def _show_assumptions(console: Console, costs: Sequence[EpsilonForecast]) -> None:
    """Each assumption once: first those of all certificates, then those of some."""
    found: dict[str, dict[str, None]] = {}
    everywhere: set[str] = set()
    for number, cost in enumerate(costs):
        for row in cost.shown:
            who = f"{number} {row.observer}, {row.protects}"
            everywhere.add(who)
            for text in row.assumptions:
                found.setdefault(text, {})[who] = None
    every = "Every certificate assumes"
    sections: dict[str, list[str]] = {}
    for text, whose in found.items():
        names = "; ".join(dict.fromkeys(who.split(" ", 1)[1] for who in whose))
        title = every if len(whose) == len(everywhere) else names
        sections.setdefault(title, []).append(text)
    for title in sorted(sections, key=lambda title: title != every):
        _line(console, f"{title}:")
        for text in sections[title]:
            _line(console, f"  - {text}")
    for text in dict.fromkeys(text for cost in costs for text in _not_covered(cost)):
        _line(console, f"not covered: {text}")


def _not_covered(cost: EpsilonForecast) -> tuple[str, ...]:
    """What no certificate of the settings covers."""
    return (*cost.exp.data.not_covered, *cost.exp.allocator.not_covered)


def _line(console: Console, text: str) -> None:
    console.print(text, soft_wrap=True)


def _record(cost: EpsilonForecast) -> dict[str, Any]:
    """Everything as plain values. An epsilon without a bound is null."""
    exp = cost.exp
    return {
        "overrides": list(cost.words),
        "method": exp.algo.label,
        "rounds": exp.options.rounds,
        "delta": exp.accountant.delta,
        "observer": exp.algo.headline_observer,
        "noise": cost.plan.noise_multipliers,
        "target": asdict(cost.target) if cost.target else None,
        "repeated_rounds": dict(cost.repeated),
        "not_covered": list(_not_covered(cost)),
        "epsilons": [
            asdict(row) | {"certified": bounded(row.certified), "claimed": bounded(row.claimed)}
            for row in cost.shown
        ],
    }


def _json(costs: Sequence[EpsilonForecast]) -> str:
    return json.dumps([_record(cost) for cost in costs], indent=2, allow_nan=False) + "\n"


def _table(costs: Sequence[EpsilonForecast]) -> tuple[list[str], list[list[str]]]:
    """Unrounded: of one configuration a row for each round, observer and method; of several a row
    for each, with the certified epsilon of each observer after all rounds."""
    if len(costs) > 1:
        return _wide_table(costs, str)
    [cost] = costs
    fields = ("round", "observer", "unit", "group", "adjacency", "method", "certified", "claimed")
    values = [[getattr(row, name) for name in fields] for row in cost.shown]
    rows = [["" if value is None else str(value) for value in own] for own in values]
    return ["noise", *fields], [[cost.noise_text, *row] for row in rows]


def _wide_table(
    costs: Sequence[EpsilonForecast], text: Callable[[float], str]
) -> tuple[list[str], list[list[str]]]:
    swept = _swept(costs)
    seen = list(dict.fromkeys(row.observer for cost in costs for row in cost.last))
    tested = any(cost.tested for cost in costs)
    rows = []
    for number, cost in enumerate(costs):
        own = [column[number] for _, column in swept]
        decisive = [row.adjacency for row in cost.last if row.unit == cost.unit]
        adjacency = "; ".join(dict.fromkeys(decisive))
        observers = {row.observer for row in cost.last}
        epsilons = [text(headline(cost.last, one)) if one in observers else "" for one in seen]
        rounds, delta = cost.exp.options.rounds, cost.exp.accountant.delta
        about = [str(rounds), cost.noise_text, cost.unit, adjacency, str(delta)]
        tests = [text(headline(cost.tested)) if cost.tested else ""] if tested else []
        rows.append([*own, *about, *epsilons, *tests])
    keys = [key for key, _ in swept]
    columns = [*keys, "rounds", "noise", "unit", "adjacency", "delta", *seen]
    return [*columns, f"{TEST_PERSON}s"] if tested else columns, rows


def _csv(costs: Sequence[EpsilonForecast]) -> str:
    text = io.StringIO()
    columns, rows = _table(costs)
    csv.writer(text, lineterminator="\n").writerows([columns, *rows])
    return text.getvalue()


def _markdown(costs: Sequence[EpsilonForecast]) -> str:
    columns, rows = _table(costs)
    lines = [columns, ["---"] * len(columns), *rows]
    return "".join("| " + " | ".join(c.replace("|", "\\|") for c in row) + " |\n" for row in lines)


FORMATS: dict[str, Callable[[Sequence[EpsilonForecast]], str]] = {
    ".json": _json,
    ".csv": _csv,
    ".md": _markdown,
}
"""Writer of each file suffix."""
