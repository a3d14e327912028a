"""Measure the study of docs/which_method.md: `python -m scripts.measured_study FOLDER [DATA ...]`.

Runs are below the folder; started again, the script goes on. It writes results/study.csv and the
picture, and prints the page's table; without a folder, it runs nothing.

Two data sets are those of `fedpriv reproduce study/...`. A third one, `adult`, is a natural table:
the first 1,000 census answers, without kinds of employers that hardly anybody names. Each row is
a person; the silos are the kinds of employers. A user has one record there: all methods protect the
unit record, and turns are refused.
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
from fedpriv.papers.study.study import EPSILON, PROFILES, study
from fedpriv.papers.study.table import (
    baselines,
    compare_with_reference,
    read,
    rows,
    write,
)

ROOT = Path(__file__).parents[1]
TABLE = ROOT / "results" / "study.csv"
PICTURE = ROOT / "docs" / "assets" / "which_method.png"
SCHEMA = Path(__file__).parent / "adult_schema.yaml"
CENSUS = (
    *("ULDP-GROUP", "ULDP-SGD", "ULDP-AVG", "ULDP-AVG-w", "ULDP-OPT", "DP-SGD", "DP-ERM"),
    *("MB-SGD", "Prox-SGD", "Localized MB-SGD", "FedAvg"),
)
"""Methods of the census. For want of time the others were not run: most had erred most for users of
breast cancer. DP-FTRL's turns are refused, and MR-MTL fails on validation records without silos."""
PERSONS = 1000
DATA = {
    "breast_cancer": "breast cancer",
    "heart_disease": "four hospitals",
    "creditcard": "card payments",
    "adult": "census",
}
"""Titles, by names."""
MANY_RECORDS = ("Prox-SGD", "Localized MB-SGD", "Local SGD")
"""They divide a silo's records among rounds, phases or steps. With four records a user, the
smallest hospital has too few."""
LEAST = 4
"""Methods that the page's table names."""
Measured = dict[str, pd.DataFrame]
"""The study's table by the name of the data."""


def main(words: list[str]) -> None:
    """Run the studies of the data that `words` names after the folder, or of all."""
    measured = table() if TABLE.exists() else {}
    for name in (words[1:] or DATA) if words else ():
        folder = Path(words[0]) / name
        own = adult(folder) if name == "adult" else (f"experiment=study/{name}",)
        found = study(own, folder, PROFILES["paper"], methods(name))
        if name == "adult":
            found["unit"] = found["unit"].replace(USER, RECORD)
        measured[name] = found
        write(pd.concat(measured, names=["data"]).reset_index("data"), TABLE)
    draw({DATA[name]: own for name, own in measured.items()}, PICTURE)
    print(page(measured))


def methods(data: str) -> list[Method]:
    """The methods with a certificate, and FedAvg."""
    known = [one for one in METHODS if one.private or one.name == "FedAvg"]
    if data == "adult":
        known = [one for one in known if one.name in CENSUS]
        return [_for_records(one) if RECORD in one.units else one for one in known]
    if data == "heart_disease":
        return [_for_records(one) if one.name in MANY_RECORDS else one for one in known]
    return known


def _for_records(method: Method) -> Method:
    """The method for the unit record alone."""
    return replace(method, units={RECORD: method.units[RECORD]})


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
    return (
        *("experiment=study/heart_disease", "data=table", "allocator=natural"),
        *(f"data.path={path}", f"data.schema={SCHEMA}", "data.one_row_per_user=true"),
        *("preset.n_users=null", "preset.n_silos=null", "preset.zero_start=false"),
        "data.metric=balanced_accuracy",
    )


def table(path: Path = TABLE) -> Measured:
    """The rows of the table."""
    groups = read(path).groupby("data", sort=False)
    return {str(data): rows.drop(columns="data") for data, rows in groups}


def page(measured: Measured) -> str:
    """The page's table: least errors, and how many are significantly worse than the reference."""
    lines = ["| data | unit | least mean errors | worse than the reference | no privacy |"]
    lines.append("| --- " * 5 + "|")
    for data, own in measured.items():
        free = next(_error(one) for one in rows(baselines(own)) if one.method == "FedAvg")
        for unit in (one for one in (USER, RECORD) if one in {*own["unit"]}):
            found = compare_with_reference(own, unit, EPSILON)
            least = ", ".join(map(_error, rows(found.head(LEAST))))
            worse = f"{sum(found['verdict'] == 'worse')} of {len(found) - 1}"
            lines.append(f"| {DATA[data]} | {unit} | {least} | {worse} | {free} |")
    return "\n".join(lines)


def _error(one: Any) -> str:
    """A method and its mean error in per cent, with an asterisk if its step size is an end."""
    end = one.step in (one.steps[0], one.steps[-1])
    return f"{one.method} {100 * one.mean:.1f}{'*' * end}"


if __name__ == "__main__":
    main(sys.argv[1:])
