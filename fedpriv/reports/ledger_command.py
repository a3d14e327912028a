"""`fedpriv ledger`: what a data set has paid in all runs, and what is left."""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rich.table import Table

from fedpriv.accountants.filters import Budget
from fedpriv.errors import FedprivError, require
from fedpriv.ledgers.data_ledger import DataLedger
from fedpriv.ledgers.entries import GRANT, UNITS, Balance, Population
from fedpriv.util.consoles import wide_console
from fedpriv.util.parsers import Parser, action_parser
from fedpriv.util.printing import say

EPILOG = """\
examples:
  fedpriv ledger init clinic.jsonl --population patients:user:3
  fedpriv data=table data.path=t.csv randomness=system ledger=clinic.jsonl   # charged, or refused
  fedpriv ledger show clinic.jsonl --json
"""


def main(args: list[str]) -> None:
    """Run one of the actions. Raises FedprivError."""
    own = _parser().parse_args(args)
    action: Callable[[argparse.Namespace], None] = ACTIONS[own.action][0]
    action(own)


def _init(own: argparse.Namespace) -> None:
    populations = [*map(_population, own.population)]
    names = [one.name for one in populations]
    groups = [group.split(",") for group in own.overlap]
    units = {one.name: one.unit for one in populations}
    for group in groups:
        known = set(group) <= set(names) and len(set(group)) > 1
        alike = len({units.get(name) for name in group}) == 1
        allowed = f"two or more of {', '.join(names)}, of one unit"
        require(known and alike, "--overlap", ",".join(group), allowed)
    require(len(set(names)) == len(names), "--population", names[-1], "each name once")
    DataLedger.begin(own.file, own.name or own.file.stem, populations, groups)
    say(f"{own.file}: a ledger of {', '.join(names)}; ledger={own.file} charges a run to it")


def _population(text: str) -> Population:
    allowed = f"name:unit:epsilon or name:unit:epsilon:delta, unit {' or '.join(UNITS)}"
    name, *rest = text.split(":")
    try:
        unit, epsilon, delta = (*rest, "1e-5") if len(rest) == 2 else rest
        budget = Budget(float(epsilon), float(delta), near=float(epsilon))
    except ValueError as error:
        raise FedprivError(f"--population={text}: {allowed}") from error
    require(name.isidentifier() and unit in UNITS, "--population", text, allowed)
    return Population(name, unit, budget)


def _grant(own: argparse.Namespace) -> None:
    require(0 < own.epsilon < math.inf, "epsilon", own.epsilon, "a positive epsilon")
    with DataLedger(own.file) as ledger:
        known = ", ".join(ledger.balance.populations)
        require(own.population in ledger.balance.populations, "population", own.population, known)
        ledger.add({"kind": GRANT, "population": own.population, "epsilon": own.epsilon})
        budget = ledger.balance.populations[own.population].budget
    say(f"{own.population}: {budget}. The filter's proof is of budgets fixed before any result.")


def _check(own: argparse.Namespace) -> None:
    with DataLedger(own.file) as ledger:
        balance = ledger.balance
    say(f"{own.file}: {balance.entries} lines, unaltered, and the newest that this machine wrote")
    say(f"last line: {balance.digest}")


def _show(own: argparse.Namespace) -> None:
    balance = DataLedger.seen(own.file)
    facts = _facts(balance)
    if own.json:
        say(json.dumps(facts, indent=2))
        return
    console = wide_console()
    budgets = Table(title=f"ledger {balance.name}: {balance.entries} lines", title_justify="left")
    for header in ("population", "unit", "delta", "budget", "spent", "left", "overlaps with"):
        budgets.add_column(header, justify="right" if header in NUMBERS else "left")
    for one in facts["populations"]:
        others = ", ".join(one["overlaps_with"])
        numbers = [f"{one[key]:.4g}" for key in ("delta", "budget", "spent", "left")]
        budgets.add_row(one["name"], one["unit"], *numbers, others)
    console.print(budgets)
    released = Table(title="what was released", title_justify="left")
    for header in ("since", "population", "to whom", "what", "epsilon alone", "state", "run"):
        released.add_column(header, justify="right" if header in NUMBERS else "left")
    for run in facts["runs"]:
        words = [run[key] for key in ("since", "population", "observer", "words")]
        released.add_row(*words, f"{run['epsilon_alone']:.4g}", run["state"], run["run"])
    console.print(released)


NUMBERS = ("delta", "budget", "spent", "left", "epsilon alone")


def _facts(balance: Balance) -> dict[str, Any]:
    """What `show` tells, as plain values."""
    populations = []
    for name, population in balance.populations.items():
        others = {one for group in balance.groups_of(name) for one in group} - {name}
        spent = balance.spent(name)
        populations.append(
            {
                "name": name,
                "unit": population.unit,
                "delta": population.budget.delta,
                "budget": population.budget.epsilon,
                "spent": spent,
                "left": max(0.0, population.budget.epsilon - spent),
                "overlaps_with": sorted(others),
            }
        )
    runs = [
        {
            "since": run.since,
            "population": run.population,
            "observer": run.observer,
            "words": run.words,
            "queries": run.texts.total(),
            "epsilon_alone": balance.cost(run),
            "state": "settled" if run.settled else "running or killed",
            "run": run.run,
        }
        for run in balance.runs.values()
    ]
    about = {"ledger": balance.name, "entries": balance.entries, "digest": balance.digest}
    return {**about, "populations": populations, "runs": runs}


ACTIONS: dict[str, tuple[Callable[[argparse.Namespace], None], str]] = {
    "init": (_init, "make a ledger with a budget for each population"),
    "show": (_show, "what was released, to whom, since when, and what is left"),
    "check": (_check, "whether the file is unaltered and the newest"),
    "grant": (_grant, "let a budget grow"),
}


def _parser() -> Parser:
    about = "What a data set has paid in all runs, and what is left."
    parser, action = action_parser("fedpriv ledger", about, EPILOG)
    known = {name: action(name, text) for name, (_, text) in ACTIONS.items()}
    for name in known:
        known[name].add_argument("file", type=Path, metavar="FILE", help="the ledger")
    about = "whom it is of: name:unit:epsilon[:delta]; repeat it for several"
    known["init"].add_argument("--population", action="append", required=True, help=about)
    about = "populations with persons in common: their charges are summed"
    known["init"].add_argument("--overlap", action="append", default=[], help=about)
    known["init"].add_argument("--name", help="of the ledger; by default the file's")
    known["show"].add_argument("--json", action="store_true", help="print everything as JSON")
    known["grant"].add_argument("population")
    known["grant"].add_argument("epsilon", type=float, help="by which its budget grows")
    return parser
