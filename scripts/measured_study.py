"""Measure the study of docs/which_method.md: `python -m scripts.measured_study FOLDER [DATA ...]`.

Runs are below the folder; started again, the script goes on. It writes results/study.csv and the
picture, and prints the page's table; without a folder, it runs nothing.

Three data sets are those of `fedpriv reproduce study/...`. The fourth, `adult`, is a natural table:
the first 1,000 census answers, without kinds of employers that hardly anybody names. Each row is
a person; the silos are the kinds of employers. A user has one record there, so the methods for
records protect users as they are, and turns are refused.
"""

from __future__ import annotations

import csv
import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import yaml

from fedpriv.data.adult import COLUMNS
from fedpriv.papers.study.methods import METHODS, RECORD, USER, Method
from fedpriv.papers.study.picture import draw
from fedpriv.papers.study.study import PROFILES, study
from fedpriv.papers.study.table import baselines, compare_with_reference, read, rows, write

ROOT = Path(__file__).parents[1]
TABLE = ROOT / "results" / "study.csv"
PICTURE = ROOT / "docs" / "assets" / "which_method.png"
SCHEMA = Path(__file__).parent / "adult_schema.yaml"
PERSONS = 1000
DATA = ("breast_cancer", "heart_disease", "creditcard", "adult")
Measured = dict[str, pd.DataFrame]
"""The study's table by the name of the data."""


def main(words: list[str]) -> None:
    """Run the studies of the data that `words` names after the folder, or of all."""
    measured = table() if TABLE.exists() else {}
    for name in (words[1:] or DATA) if words else ():
        folder = Path(words[0]) / name
        own = adult(folder) if name == "adult" else (f"experiment=study/{name}",)
        measured[name] = study(own, folder, PROFILES["paper"], methods(name))
        write(pd.concat(measured, names=["data"]).reset_index("data"), TABLE)
    draw(measured, PICTURE)
    print(page(measured))


def methods(data: str) -> list[Method]:
    """The methods with a certificate, and FedAvg."""
    known = [one for one in METHODS if one.private or one.name == "FedAvg"]
    if data != "adult":
        return known
    return [
        replace(one, units={RECORD: one.units[RECORD]}) if RECORD in one.units else one
        for one in known
        if one.name != "DP-FTRL"
    ]


def adult(folder: Path) -> tuple[str, ...]:
    """The overrides of the natural table, which is written into a folder."""
    employers = yaml.safe_load(SCHEMA.read_text())["silo"]["names"]
    source = Path(os.environ["FEDPRIV_DATA"]) / "adult" / "adult.data"
    answers = [line.split(", ") for line in source.read_text().splitlines()[:PERSONS]]
    folder.mkdir(parents=True, exist_ok=True)
    path = folder.resolve() / "adult.csv"
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(COLUMNS)
        writer.writerows(one for one in answers if one[1] in employers)
    words = ("data=table", f"data.path={path}", f"data.schema={SCHEMA}", "allocator=natural")
    words += ("data.one_row_per_user=true", "data.metric=balanced_accuracy")
    words += ("preset.n_users=null", "preset.n_silos=null", "preset.zero_start=false")
    return ("experiment=study/heart_disease", *words)


def table(path: Path = TABLE) -> Measured:
    """The rows of the table."""
    groups = read(path).groupby("data", sort=False)
    return {str(data): rows.drop(columns="data") for data, rows in groups}


def page(measured: Measured) -> str:
    """The page's table: what is better than the reference, no different from it, or worse."""
    lines = [
        "| data | unit | better than the reference | not resolved from it | worse | not private |",
        "| --- " * 6 + "|",
    ]
    for data, own in measured.items():
        free = next(_error(one) for one in rows(baselines(own)) if one.method == "FedAvg")
        for unit in (USER, RECORD):
            found = compare_with_reference(own, unit, 3.0)
            named = {
                verdict: [_error(one) for one in rows(found) if one.verdict == verdict]
                for verdict in ("better", "not resolved", "worse")
            }
            if len(found) > 1:
                cells = [", ".join(named["better"]), ", ".join(named["not resolved"])]
                cells += [f"{len(named['worse'])} methods", free]
                lines.append(f"| {data} | {unit} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _error(one: Any) -> str:
    """A method and its mean error in per cent, with an asterisk if its step size is an end."""
    end = one.step in (one.steps[0], one.steps[-1])
    return f"{one.method} {100 * one.mean:.1f}{'*' * end}"


if __name__ == "__main__":
    main(sys.argv[1:])
