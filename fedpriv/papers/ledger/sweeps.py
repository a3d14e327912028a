"""Run a replication: choose settings on the tuning seeds, then run the chosen ones on the others.

All runs of a question and method share a folder. Started again, finished runs are left alone.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from fedpriv.errors import FedprivError
from fedpriv.papers.ledger.entries import Replication, by_key, combinations
from fedpriv.papers.ledger.results import COLUMNS, DECIDING, TUNING
from fedpriv.reports.finished_runs import Run, read_run, sweep_order
from fedpriv.runtime import DivergedError
from fedpriv.settings.compose import CommandLine, compose_jobs
from fedpriv.settings.words import conf_dir
from fedpriv.sweeps.side_by_side import Job, SideBySide

AT_ONCE = 64
"""Runs that share a process."""
Say = Callable[[str], None]
Row = dict[str, Any]
Best = dict[str, tuple[int, dict[str, str]]]
"""The best alternative and its settings, by the name of a place."""


def replicate(run: Replication, folder: Path, say: Say) -> pd.DataFrame:
    """Run everything below a folder, and return the table of `results`, question by question.

    say: receives a line for each sweep.
    """
    rows: list[Row] = []
    for question, method in product(run.cases, run.methods):
        below = folder / question / method.lower().replace(" ", "_")
        say(f"{question}: {method}")
        best: Best = {}
        if run.grid(question, method):
            tuning, best = _tune(run, question, method, folder=below)
            rows += tuning
        rows += _decide(run, question, method, folder=below, best=best)
    return pd.DataFrame(rows)


def _tune(run: Replication, question: str, method: str, *, folder: Path) -> tuple[list[Row], Best]:
    """The rows of the tuning runs, and the best alternative and settings at each place."""
    alternatives = run.alternatives(question, method)
    grid = run.grid(question, method)
    about = {"question": question, "phase": TUNING, "method": method}
    rows: list[Row] = []
    settings: Best = {}
    for number, alternative in enumerate(alternatives):
        keys = _keys([*alternative, *grid])
        if len(alternatives) > 1:  # what tells the alternatives apart
            keys = list(dict.fromkeys([*by_key(alternative[1:]), *keys]))
        words = [*alternative, *grid, *run.places, _seeds(run.tuning_seeds)]
        for one in _sweep(run, question, words, folder / f"tuning_{number}"):
            own = _values(one, keys)
            settings[_name(own)] = number, own
            rows.append(about | _measured(run, one, own, run.chosen_by, one.rounds))
    tried = pd.DataFrame(rows, columns=COLUMNS).astype({"value": float})
    losses = tried.groupby(["place", "settings"], sort=False)["value"]
    means = losses.mean()[losses.count() == len(run.tuning_seeds)]
    least = means[np.isfinite(means)].groupby("place", sort=False).idxmin()
    places = combinations(run.places)
    if len(least) < places:  # the method would be judged untuned, or be left out
        raise FedprivError(
            f"{question}, {method}: at {places - len(least)} of {places} places all settings "
            "diverge"
        )
    return rows, {place: settings[name] for place, name in least}


def _decide(
    run: Replication, question: str, method: str, *, folder: Path, best: Best
) -> Iterator[Row]:
    """The rows of the deciding runs; without `best`, of the method as it is."""
    about = {"question": question, "phase": DECIDING, "method": method}
    metrics = sorted({one.metric for one in run.comparisons})
    alternatives = run.alternatives(question, method)
    given = [*run.places, *run.grid(question, method)]
    fixed = by_key(word for word in given if "," not in word)
    sweeps = [
        (alternatives[number], own, place.split(", ") if place else [])
        for place, (number, own) in best.items()
    ] or [(alternatives[0], {}, [word for word in run.places if "," in word])]
    for number, (alternative, own, place_words) in enumerate(sweeps):
        # `best` has the keys with several values.
        chosen = fixed | by_key(alternative) | {key: f"{key}={own[key]}" for key in own}
        words = [*chosen.values(), *place_words, _seeds(run.seeds)]
        runs = _sweep(run, question, words, folder / f"deciding_{number}")
        wanted = combinations(words)
        if len(runs) < wanted:  # a mean over the others would flatter the method
            raise FedprivError(
                f"{question}, {method}: {wanted - len(runs)} of {wanted} deciding runs diverge"
            )
        for one in runs:
            for metric, round in product(metrics, one.metrics["round"]):
                yield about | _measured(run, one, own, metric, int(round))


def _sweep(run: Replication, question: str, words: list[str], folder: Path) -> list[Run]:
    """The finished runs of a sweep; those that diverge are missing. Other failures are raised."""
    usual = (f"experiment={run.experiment}", *run.words, *run.cases[question].words)
    # A changed entry is another sweep.
    digest = hashlib.sha256("\n".join([*usual, *words]).encode()).hexdigest()[:8]
    folder = folder.with_name(f"{folder.name}_{digest}")
    done = folder / "done"
    if not done.exists():
        line = CommandLine.parse(["-m", *usual, "checkpoint_every=${rounds}", *words])
        configs = compose_jobs(line, conf_dir())
        if len(configs) != combinations(words):  # the experiment has a sweep of its own
            raise FedprivError(
                f"{run.experiment}: {' '.join(words)} makes {len(configs)} runs in place of "
                f"{combinations(words)}; name every key that the experiment sweeps"
            )
        jobs = [Job.of(config, number, folder) for number, config in enumerate(configs)]
        try:
            SideBySide(AT_ONCE).launch(jobs, quiet=True)
        except FedprivError:
            failures = [job.failure for job in jobs if job.failure is not None]
            if not all(isinstance(one, DivergedError) for one in failures):
                raise
        done.touch()
    finished = [folder for folder in folder.iterdir() if folder.is_dir()]
    return [
        found
        for one in sorted(finished, key=sweep_order)
        if (found := read_run(one, warn=lambda text: None))
    ]


def _seeds(seeds: Sequence[int]) -> str:
    return f"seed={','.join(map(str, seeds))}"


def _keys(words: Sequence[str]) -> list[str]:
    """The keys with several values."""
    return [key for key, _, values in (word.partition("=") for word in words) if "," in values]


def _values(run: Run, keys: list[str]) -> dict[str, str]:
    """A run's values of some keys; of a config group, the name of its class in lower case."""
    return {key: _value(run.config, key) for key in keys}


def _value(config: Mapping[str, Any], key: str) -> str:
    found: Any = config
    for part in key.split("."):
        found = found[part]
    if isinstance(found, Mapping):
        return str(found["_target_"]).rpartition(".")[2].lower()
    return f"{found:g}" if isinstance(found, float) else str(found)


def _name(values: Mapping[str, str]) -> str:
    return ", ".join(f"{key}={value}" for key, value in values.items())


def _measured(
    replication: Replication, run: Run, settings: Mapping[str, str], metric: str, round: int
) -> Row:
    """A metric of a run at a round, where and how it was run, and its epsilons."""
    observer = run.config["algo"].get("observer", run.status.observer)  # whom the noise is made for
    certified, claimed = run.final_epsilons(observer)
    return {
        "place": _name(_values(run, _keys(replication.places))),
        "settings": _name(settings),
        "seed": run.seed,
        "round": round,
        "metric": metric,
        "value": float(run.metrics.set_index("round")[metric].loc[round]),
        "certified": certified,
        "claimed": claimed,
    }
