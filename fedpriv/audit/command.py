"""`fedpriv audit`: the table, audit.csv and a figure. Exit code 1 where an attack beats a certificate."""

from __future__ import annotations

import argparse
import math
import sys
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from fedpriv.audit.audit import CONFIDENCE, QUICK, THOROUGH, AuditRow, audit
from fedpriv.errors import require

if TYPE_CHECKING:
    from omegaconf import DictConfig
    from rich.console import Console

COLUMNS = (
    "algorithm",
    "observer",
    "unit",
    "adjacency",
    "rounds",
    "certified",
    "claimed",
    "audited",
    "any_mechanism",
    "within_family",
    "assumed",
    "confidence",
    "negatives",
    "false_positives",
    "positives",
    "true_positives",
)


def main(args: list[str]) -> None:
    """Audit every job that the words stand for. Raises SystemExit(1) on an alarm."""
    from rich.console import Console

    from fedpriv.compose import CommandLine, compose_jobs, without_hydra
    from fedpriv.config import build
    from fedpriv.help import conf_dir

    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--colluding", default="1")
    own, words = parser.parse_known_args(args)
    silos = int(own.colluding) if own.colluding.isdigit() else 0
    require(silos >= 1, "--colluding", own.colluding, "a positive number of silos")
    line = CommandLine.parse(words)
    jobs = compose_jobs(line, conf_dir())
    exps = [build(without_hydra(config)) for config in jobs]
    for exp in exps:
        most = exp.allocator.n_silos
        require(silos <= most, "--colluding", silos, f"at most {most}, the number of silos")
    console = Console(soft_wrap=True, highlight=False)
    rows: list[AuditRow] = []
    for exp in exps:
        new = audit(exp, QUICK if own.quick else THOROUGH, colluding=silos)
        show(console, new, exp.accountant.delta)
        rows += new
    folder = _folder(jobs[0], line.overrides)
    write(rows, folder)
    console.print(f"Table and picture: {folder}")
    alarms = [row for row in rows if row.alarm]
    for row in alarms:
        broken = f"{row.algorithm}, {row.observer}, {row.unit}: at least {row.bound.audited:.4g}"
        print(f"fedpriv: ALARM: {broken}, but certified {row.certified:.4g}", file=sys.stderr)
    if alarms:
        sys.exit(1)


def _folder(config: DictConfig, words: list[str]) -> Path:
    """hydra.run.dir if it is given, else a folder of its own below outputs/audit."""
    from hydra.core.hydra_config import HydraConfig

    if any(word.startswith("hydra.run.dir=") for word in words):
        HydraConfig.instance().set_config(config)  # the folder's name may refer to it
        return Path(config.hydra.run.dir)
    name = f"{config.hydra.runtime.choices.algo}_{datetime.now():%Y-%m-%d_%H-%M-%S-%f}"
    return Path("outputs") / "audit" / name


def show(console: Console, rows: list[AuditRow], delta: float) -> None:
    """Print the table of one experiment, and what the bounds rest on."""
    from rich.table import Table

    about = f"{rows[0].algorithm}, T={rows[0].rounds}: epsilon at delta = {delta:g}"
    table = Table(title=f"{about}\naudited: at least, with {CONFIDENCE:.0%} confidence each")
    for header in ("observer", "unit", "certified", "claimed", "audited", "bound", "trials"):
        table.add_column(header)
    for row in rows:
        rates = row.bound.rates
        numbers = [_number(row.certified), _number(row.claimed), _number(row.bound.audited) + " !" * row.alarm]
        table.add_row(row.observer, row.unit, *numbers, row.assumed, f"{rates.negatives}+{rates.positives}")
    console.print(table)


def _number(value: float | None) -> str:
    return "" if value is None else "∞" if math.isinf(value) else f"{value:.4g}"


def write(rows: list[AuditRow], folder: Path) -> None:
    """audit.csv and figure.png."""
    from fedpriv.figures.tables import write_table

    folder.mkdir(parents=True, exist_ok=True)
    write_table(folder / "audit.csv", COLUMNS, map(_columns, rows))
    draw(rows, folder / "figure.png")


def _columns(row: AuditRow) -> list[object]:
    bound, rates = row.bound, row.bound.rates
    about = [row.algorithm, row.observer, row.unit, row.adjacency, row.rounds, row.certified, row.claimed]
    counts = [rates.negatives, rates.false, rates.positives, rates.true]
    return [*about, bound.audited, bound.epsilon, bound.within, row.assumed, rates.confidence, *counts]


def draw(rows: list[AuditRow], path: Path) -> None:
    """Audited bounds as bars, certificates and claims as points."""
    from fedpriv.figures.canvas import plt

    figure, axis = plt.subplots(figsize=(8.5, 1.6 + 0.45 * len(rows)), layout="constrained")
    places = range(len(rows))
    axis.barh(places, [row.bound.audited for row in rows], height=0.5, color="0.7", label="audited: at least")
    for marker, color, name in (("o", "C0", "certified"), ("x", "C3", "claimed")):
        points = [(getattr(row, name), place) for place, row in enumerate(rows)]
        known = [(value, place) for value, place in points if value is not None and math.isfinite(value)]
        axis.scatter(*zip(*known) if known else ([], []), marker=marker, color=color, label=name, zorder=3)
    labels = [f"{row.algorithm}, T={row.rounds}\n{row.observer}, {row.unit}" for row in rows]
    axis.set_yticks(places, labels, fontsize=8)
    axis.invert_yaxis()
    axis.set(xlabel="epsilon", xlim=(0, None))
    axis.grid(alpha=0.3, axis="x")
    figure.legend(*axis.get_legend_handles_labels(), loc="outside upper center", ncol=3, fontsize=8.5)
    figure.savefig(path, dpi=150)
    plt.close(figure)
