"""Figures of replications for print: two columns wide, means with bars of one standard error.

They are drawn from the values in results/ledger/ alone.
"""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.ticker import MaxNLocator

from fedpriv.papers.ledger.entries import Entry, by_key
from fedpriv.papers.ledger.results import AUTHORS, place_order, shown
from fedpriv.reports.canvas import MARKERS, Axes, Figure, plain_ticks, plt, save

WIDTH = 6.9
"""Inches, of two columns."""
METRICS = {
    "accuracy": "test accuracy",
    "balanced_accuracy": "balanced test accuracy",
    "c_index": "C-index",
    "error": "test error",
    "gradient_norm": "norm of the training gradient",
    "loss": "test loss",
    "partitions": "partitions",
    "seconds": "processor seconds",
    "train_loss": "training loss",
}
LOGARITHMIC = ("error", "seconds")
X = {"algo.epsilon": "epsilon", "peers": "peers", "users": "users"}
"""Keys of places that are an axis; all other places have panels of their own."""


def draw(entry: Entry, table: pd.DataFrame, out: Path) -> Figure:
    """Draw the deciding runs of an entry into a file."""
    judged = {*table[table["phase"] == AUTHORS]["question"]}  # the rule runs the authors' too
    table = shown(entry, table)
    table["tuned"] = table["question"].isin(judged)
    opened = entry.replication and entry.replication.open and table["settings"].any()
    where = table["place"]
    if opened:
        where = (where + ", " + table["settings"]).str.strip(", ")
    axis_key = next((key for key in by_key(where.iloc[0].split(", ")) if key in X), "")
    if axis_key:
        values = where.str.extract(rf"{axis_key}=([\d.e-]+)", expand=False)
        table["x"] = values.astype(float)
        table["panel"] = [_without(axis_key, place) for place in where]
        table = table[table["round"] == table["round"].max()]
    else:
        table = table[table["round"] > 0]  # the untrained model would squeeze the rest
        table = table.assign(x=table["round"], panel=table["settings" if opened else "place"])
        if opened:
            table = table[table["place"] == max(table["place"], key=place_order)]
    return _panels(entry, table, out, axis_key=axis_key)


def _without(key: str, place: str) -> str:
    """A place without one of its keys."""
    return ", ".join(word for word in place.split(", ") if not word.startswith(f"{key}="))


def _panels(entry: Entry, table: pd.DataFrame, out: Path, *, axis_key: str) -> Figure:
    """A column for each place, or for each question where there is one place; rows for the rest."""
    questions = list(dict.fromkeys(table["question"]))
    run = entry.replication
    metrics = run.metrics if run else list(dict.fromkeys(table["metric"]))
    places = sorted(set(table["panel"]), key=place_order)
    across = "panel" if len(places) > 1 else "question"
    columns = places if across == "panel" else questions
    down = list(product(metrics, questions if across == "panel" else places))
    height = 0.7 + 1.75 * len(down)
    figure, axes = plt.subplots(
        len(down),
        len(columns),
        figsize=(WIDTH, height),
        sharex=True,
        sharey="row",
        layout="constrained",
        squeeze=False,
    )
    for row, (metric, other) in zip(axes, down):
        for axis, column in zip(row, columns):
            question, place = (other, column) if across == "panel" else (column, other)
            here = table[
                (table["metric"] == metric)
                & (table["question"] == question)
                & (table["panel"] == place)
            ]
            _draw(axis, here, scale=axis_key == "algo.epsilon")
            if metric in LOGARITHMIC:
                axis.set_yscale("log")
            if axis is row[0]:
                name = [METRICS[metric]]
                if across == "panel" and (questions[1:] or _unanswered(entry, question)):
                    name += _asked(entry, question, here).split(", ")
                axis.set_ylabel("\n".join(name), fontsize=8)
    for axis, column in zip(axes[0], columns):
        own = table[table["question"] == column]
        text = _asked(entry, column, own) if across == "question" else _title(column)
        axis.set_title(text, fontsize=8)
    for axis in axes[-1]:
        axis.set_xlabel(X.get(axis_key, "round"), fontsize=8)
    handles, labels = axes[0, 0].get_legend_handles_labels()
    columns_of_legend = len(labels) if len(labels) <= 5 else 4
    figure.legend(
        handles,
        labels,
        loc="outside upper center",
        ncol=columns_of_legend,
        fontsize=8,
        frameon=False,
    )
    save(figure, out, dpi=200)
    return figure


def _draw(axis: Axes, here: pd.DataFrame, *, scale: bool) -> None:
    """One panel: a line for each method."""
    methods = here["method"].nunique()
    for number, (method, own) in enumerate(here.groupby("method", sort=False)):
        curve = own.groupby("x")["value"].agg(["mean", "sem"])
        above = methods - 1 - number  # curves that are drawn later; equal ones stay visible
        size: dict[str, Any] = {
            "ms": 2.5 + min(above, 2),
            "lw": 1 + 0.6 * min(above, 2),
            "elinewidth": 0.8,
        }
        few = len(curve) // 5
        every = (number * few // methods, few) if few > 1 else 1
        marks: dict[str, Any] = {
            "marker": MARKERS[number],
            "markevery": every,
            "errorevery": every,
            "capsize": 2,
        }
        axis.errorbar(curve.index, curve["mean"], curve["sem"], label=str(method), **marks, **size)
    points = sorted(set(here["x"]))
    if scale:
        axis.set_xscale("log")
        plain_ticks(axis, points)
    else:
        axis.xaxis.set_major_locator(MaxNLocator(5, integer=True, steps=[1, 2, 2.5, 5, 10]))
    axis.grid(alpha=0.3, lw=0.5)
    axis.tick_params(labelsize=7, which="both")


def _unanswered(entry: Entry, question: str) -> bool:
    """Whether runs that were not made by the rule are drawn. Nothing is tuned by the rule where our
    certificate decides."""
    run, word = entry.replication, entry.answers[question].answer
    tuned = run is not None and run.cases[question].grid
    return word == "not run" or (word == "beyond our certificate" and bool(tuned))


def _asked(entry: Entry, question: str, rows: pd.DataFrame) -> str:
    """A question as a title."""
    if np.isinf(rows["certified"]).all() and question != "curve":
        return "no privacy: every certificate is infinite"
    if _unanswered(entry, question):
        noise = "the paper's noise" if question == "curve" else "equal certificates"
        part = entry.same.get("tuning", "").startswith("part")
        settings = "part of the grid" if part else "the earlier rule's settings"
        if rows["tuned"].any():
            settings = "tuned below the authors'"
        return f"{noise}, {settings}"
    if question == "curve":
        return "as in the paper"
    known = entry.replication
    tuned = known and any(
        known.grid(question, name) or len(known.alternatives(question, name)) > 1
        for name in known.methods
    )
    return "tuned, equal certificates" if tuned else "equal certificates"


def _title(place: str) -> str:
    """A place as a title: `allocator.n_users=50, allocator=zipf` as `50 users, zipf`."""
    parts = []
    for word in place.split(", "):
        key, _, value = word.partition("=")
        last = key.rpartition(".")[2]
        names = {
            "allocator": value,
            "local_lr": f"step size {value}",
            "data": value.replace("_", " "),
            "n_silos": f"{value} silos",
            "n_users": f"{value} users",
            "size": f"groups of {value}",
        }
        parts.append(names.get(last, f"{last.replace('_', ' ')} {value}"))
    return ", ".join(parts)
