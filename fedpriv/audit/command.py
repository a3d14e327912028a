"""`fedpriv audit`: table, audit.csv and audit.json. After the word `analyse` or `evaluate` come
those of that command.

Exit code 1 if a bound refutes its certificate, or a measurement an assumption of it.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Callable
from dataclasses import asdict, fields, replace
from datetime import datetime
from pathlib import Path
from typing import Any

import pandas as pd
from hydra.core.hydra_config import HydraConfig
from omegaconf import OmegaConf
from rich.console import Console
from rich.table import Table

from fedpriv.audit.audit import CONFIDENCE, QUICK, THOROUGH, AuditRow, audit
from fedpriv.audit.guessing import Guesses
from fedpriv.audit.one_run import QUICK_CANARIES, THOROUGH_CANARIES, audit_in_one_run
from fedpriv.audit.orthogonal_canaries import MIN_CANARIES
from fedpriv.audit.progress import AuditProgress
from fedpriv.audit.rates import Rates
from fedpriv.errors import require
from fedpriv.reports.audit_file import AUDIT, write_audit
from fedpriv.runs.analyse_command import Analysis
from fedpriv.runs.run_evaluation import RunEvaluation
from fedpriv.settings.compose import CommandLine, compose_jobs, one_line_errors, without_hydra
from fedpriv.settings.experiment import Experiment, build
from fedpriv.settings.words import conf_dir
from fedpriv.testing.premise import power_lines
from fedpriv.util.consoles import HarmlessConsole
from fedpriv.util.durable_files import replace_file
from fedpriv.util.parsers import Parser
from fedpriv.util.printing import say

Attacker = Callable[[Experiment, AuditProgress], list[AuditRow]]

RELEASES: dict[str, Callable[[list[str]], Analysis | RunEvaluation]] = {
    "analyse": Analysis.parse,
    "evaluate": RunEvaluation.parse,
}
"""Commands of one round, which compose their words themselves."""
COUNTS = [*dict.fromkeys(field.name for cls in (Rates, Guesses) for field in fields(cls))]
"""Columns with the evidence of a bound. Trials and one run fill different ones."""


def main(args: list[str]) -> None:
    """Audit every job of the command line. Raises SystemExit(1) on an alarm."""
    parser = Parser("fedpriv audit", add_help=False, allow_abbrev=False)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--colluding", default="1")
    parser.add_argument("--one-run", action="store_true")
    parser.add_argument("--canaries")
    own, words = parser.parse_known_args(args)
    silos = int(own.colluding) if own.colluding.isdigit() else 0
    require(silos >= 1, "--colluding", own.colluding, "a positive number of silos")
    attack = _attack(own, silos)
    jobs, folder = _composed(words)
    place = next(one for one in (folder, *folder.parents) if one.exists())
    require(place.is_dir(), "hydra.run.dir", folder, "a folder")
    for exp, _ in jobs:
        most = exp.allocator.n_silos
        require(silos <= most, "--colluding", silos, f"at most {most}, the number of silos")
        alone = exp.algo.releases_model or not own.one_run
        allowed = "one that releases a model: many canaries need a network"
        require(alone, "--one-run", exp.algo.label.lower(), allowed)
    console = HarmlessConsole(soft_wrap=True)
    rows: list[AuditRow] = []
    found = []
    for exp, settings in jobs:
        new = attack(exp, AuditProgress(quiet=exp.options.quiet))
        show(console, new, exp.accountant.delta)
        rows += new
        found.append({"settings": settings, **as_data(new)})
    write(rows, folder)
    write_audit(folder / AUDIT, CONFIDENCE, found)
    console.print(f"Table: {folder}")
    for row in rows:
        if row.refuted:
            proven = (
                f"{row.algorithm}, {row.observer}, {row.protects}: at least {row.bound.audited:.4g}"
            )
            say(f"fedpriv: ALARM: {proven}, but certified {row.certified:.4g}", file=sys.stderr)
    for broken in dict.fromkeys(f"{row.algorithm}: {p}" for row in rows for p in row.broken):
        say(f"fedpriv: ALARM: {broken}", file=sys.stderr)
    if any(row.alarm for row in rows):
        sys.exit(1)


def _attack(own: argparse.Namespace, silos: int) -> Attacker:
    """The audit of one experiment that the flags ask for."""
    if not own.one_run:
        require(own.canaries is None, "--canaries", own.canaries, "for --one-run only")
        effort = QUICK if own.quick else THOROUGH
        return lambda exp, progress: audit(exp, effort, colluding=silos, progress=progress)
    given = own.canaries or str(QUICK_CANARIES if own.quick else THOROUGH_CANARIES)
    canaries = int(given) if given.isdigit() else 0
    require(canaries >= MIN_CANARIES, "--canaries", given, f"a number from {MIN_CANARIES} on")
    return lambda exp, progress: audit_in_one_run(exp, canaries, colluding=silos, progress=progress)


def _composed(words: list[str]) -> tuple[list[tuple[Experiment, Any]], Path]:
    """What is audited, with its settings as plain values, and the folder of the results:
    hydra.run.dir if it is given, else a new one below outputs/audit."""
    jobs: list[tuple[Experiment, Any]]
    if words and words[0] in RELEASES:
        name = words[0]
        with one_line_errors():
            asked = RELEASES[name](words[1:])
        # No ledger is charged, but it has chosen the noise.
        options = replace(asked.experiment.options, ledger=None, population=None)
        jobs, folder = [(replace(asked.experiment, options=options), asked.config)], asked.folder
    else:
        configs = compose_jobs(CommandLine.parse(words), conf_dir())
        plain = (OmegaConf.to_container(without_hydra(one), resolve=True) for one in configs)
        jobs = list(zip(map(build, configs), plain))
        HydraConfig.instance().set_config(configs[0])  # the folder's name may refer to it
        name, folder = configs[0].hydra.runtime.choices.algo, Path(configs[0].hydra.run.dir)
    if any(word.startswith("hydra.run.dir=") for word in words):
        return jobs, folder
    return jobs, Path("outputs") / "audit" / f"{name}_{datetime.now():%Y-%m-%d_%H-%M-%S-%f}"


def show(console: Console, rows: list[AuditRow], delta: float) -> None:
    """Print the table of one experiment, and the evidence of its bounds."""
    about = f"{rows[0].algorithm}, T={rows[0].round}: epsilon at delta = {delta:g}"
    one_run = any(row.estimate is not None for row in rows)
    table = Table(
        *("observer", "unit", "certified", "claimed", "audited"),
        *(("any", "estimate") if one_run else ("bound", "trials")),
        title=f"{about}\naudited: at least, with {CONFIDENCE:.0%} confidence each",
    )
    for row in rows:
        audited = _number(row.bound.audited) + " !" * row.alarm
        evidence = (
            (_number(row.bound.epsilon), _number(row.estimate))
            if one_run
            else (row.assumed, row.bound.evidence.summary)
        )
        certificate = _number(row.certified), _number(row.claimed)
        table.add_row(row.observer, row.protects, *certificate, audited, *evidence)
    console.print(table)
    for row in rows:
        if row.powerless and math.isfinite(row.certified):
            console.print(
                f"{row.observer}, {row.protects}: CANNOT REFUTE {_number(row.certified)}: this "
                f"audit proves at most {_number(row.bound.provable)}"
            )
    measured = [premise for row in rows for premise in row.premises]
    if measured:
        broken = sum(premise.alarm for premise in dict.fromkeys(measured))
        console.print(f"{len(dict.fromkeys(measured))} premises measured, {broken} refuted")
        for line in power_lines(measured):
            console.print(line)
    if one_run:
        console.print("any: bound for any mechanism. estimate: a Gaussian fit, not a bound.")
        for row in rows:
            console.print(f"{row.observer}, {row.protects}: {row.bound.evidence.summary}")


def _number(value: float | None) -> str:
    return "" if value is None else "∞" if math.isinf(value) else f"{value:.4g}"


def write(rows: list[AuditRow], folder: Path) -> None:
    """Write audit.csv."""
    folder.mkdir(parents=True, exist_ok=True)
    # Type object: a count stays whole beside a row without one.
    table = pd.DataFrame([cells(row) for row in rows], dtype=object)
    replace_file(folder / "audit.csv", table.to_csv(index=False, lineterminator="\n").encode())


def cells(row: AuditRow) -> dict[str, Any]:
    """The columns of audit.csv."""
    bound = row.bound
    about = ("algorithm", "observer", "unit", "group", "adjacency")
    estimates = ("metric", "estimate", "estimate_low", "estimate_high")
    counts = asdict(bound.evidence)
    return {
        **{name: getattr(row, name) for name in about},
        "rounds": row.round,
        "certified": row.certified,
        "claimed": row.claimed,
        "audited": bound.audited,
        "any_mechanism": bound.epsilon,
        "within_family": bound.within,
        "assumed": row.assumed,
        "provable": bound.provable,
        **{name: getattr(row, name) for name in estimates},
        **{name: counts.get(name) for name in COUNTS},
    }


def as_data(rows: list[AuditRow]) -> dict[str, Any]:
    """The rows of one experiment, and the assumptions that were measured, as plain values."""
    premises = dict.fromkeys(premise for row in rows for premise in row.premises)
    return {
        "rows": [cells(row) | {"refuted": row.refuted} for row in rows],
        "premises": [
            {"observer": premise.observer, "name": premise.name, "refuted": premise.alarm}
            for premise in premises
        ],
    }
