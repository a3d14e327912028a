"""Run a replication: choose settings on the tuning seeds, then run the chosen ones on the others.

All runs of a question and method share a folder. Started again, finished runs are left alone.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterator, Mapping
from itertools import product
from pathlib import Path
from typing import Any

from fedpriv.errors import FedprivError
from fedpriv.papers.ledger.entries import Replication, combinations
from fedpriv.papers.ledger.results import DECIDING, TUNING, Row
from fedpriv.reports.finished_runs import Run, read_run, sweep_order
from fedpriv.runtime import DivergedError
from fedpriv.settings.compose import CommandLine, compose_jobs
from fedpriv.settings.help import conf_dir
from fedpriv.sweeps.side_by_side import Job, SideBySide

AT_ONCE = 64
"""Runs that share a process."""
Say = Callable[[str], None]


def replicate(run: Replication, folder: Path, say: Say) -> Iterator[Row]:
    """Run everything below a folder, and yield the rows of the results, question by question.

    say: receives a line for each sweep.
    """
    for question, method in product(run.cases, run.methods):
        below = folder / question / method.lower().replace(" ", "_")
        say(f"{question}: {method}")
        best: dict[str, tuple[int, dict[str, str]]] = {}
        if run.grid(question, method):
            rows, best = _tune(run, question, method, folder=below)
            yield from rows
        yield from _decide(run, question, method, folder=below, best=best)


def _tune(
    run: Replication, question: str, method: str, *, folder: Path
) -> tuple[list[Row], dict[str, tuple[int, dict[str, str]]]]:
    """The rows of the tuning runs, and the best alternative and settings at each place."""
    alternatives = run.alternatives(question, method)
    grid = run.grid(question, method)
    rows: list[Row] = []
    losses: dict[tuple[str, int, str], list[float]] = {}
    settings: dict[str, dict[str, str]] = {}
    for number, alternative in enumerate(alternatives):
        keys = _keys([*alternative, *grid])
        if len(alternatives) > 1:  # what tells the alternatives apart
            fixed = [word.partition("=")[0] for word in alternative[1:]]
            keys = list(dict.fromkeys([*fixed, *keys]))
        words = [*alternative, *grid, *run.places, _seeds(run.tuning_seeds)]
        for one in _sweep(run, question, words, folder / f"tuning_{number}"):
            place, own = _values(one, _keys(run.places)), _values(one, keys)
            name = _name(own)
            settings[name] = own
            loss = one.final(run.chosen_by)
            losses.setdefault((_name(place), number, name), []).append(loss)
            rows.append(_row(question, TUNING, method, one, place, own, metric=run.chosen_by))
    best: dict[str, tuple[float, int, dict[str, str]]] = {}
    for (place_name, number, name), found in losses.items():
        mean = sum(found) / len(found)
        complete = len(found) == len(run.tuning_seeds) and math.isfinite(mean)
        if complete and (place_name not in best or mean < best[place_name][0]):
            best[place_name] = mean, number, settings[name]
    places = combinations(run.places)
    if len(best) < places:  # the method would be judged untuned, or be left out
        raise FedprivError(
            f"{question}, {method}: at {places - len(best)} of {places} places all settings diverge"
        )
    return rows, {place: (number, own) for place, (_, number, own) in best.items()}


def _decide(
    run: Replication,
    question: str,
    method: str,
    *,
    folder: Path,
    best: Mapping[str, tuple[int, dict[str, str]]],
) -> Iterator[Row]:
    """The rows of the deciding runs; without `best`, of the method as it is."""
    metrics = sorted({one.metric for one in run.comparisons})
    alternatives = run.alternatives(question, method)
    given = [*run.places, *run.grid(question, method)]
    fixed = {word.partition("=")[0]: word for word in given if "," not in word}
    if best:
        sweeps = [
            (alternatives[number], own, place.split(", ") if place else [])
            for place, (number, own) in best.items()
        ]
    else:
        sweeps = [(alternatives[0], {}, [word for word in run.places if "," in word])]
    for number, (alternative, own, place_words) in enumerate(sweeps):
        # `best` has the keys with several values.
        chosen = fixed | {word.partition("=")[0]: word for word in alternative}
        chosen |= {key: f"{key}={value}" for key, value in own.items()}
        words = [*chosen.values(), *place_words, _seeds(run.seeds)]
        runs = _sweep(run, question, words, folder / f"deciding_{number}")
        wanted = combinations(words)
        if len(runs) < wanted:  # a mean over the others would flatter the method
            raise FedprivError(
                f"{question}, {method}: {wanted - len(runs)} of {wanted} deciding runs diverge"
            )
        for one in runs:
            place = _values(one, _keys(run.places))
            for metric in metrics:
                for round in one.metrics["round"]:
                    yield _row(
                        question, DECIDING, method, one, place, own, metric=metric, round=int(round)
                    )


def _sweep(run: Replication, question: str, words: list[str], folder: Path) -> list[Run]:
    """The finished runs of a sweep; those that diverge are missing. Other failures are raised."""
    usual = (f"experiment={run.experiment}", *run.words, *run.cases[question].words)
    # A changed entry is another sweep.
    digest = hashlib.sha256("\n".join([*usual, *words]).encode()).hexdigest()[:8]
    folder = folder.with_name(f"{folder.name}_{digest}")
    done = folder / "done"
    if not done.exists():
        own = ("checkpoint_every=${rounds}", f"hydra.sweep.dir='{folder}'")
        line = CommandLine.parse(["-m", *usual, *own, *words])
        configs = compose_jobs(line, conf_dir())
        if len(configs) != combinations(words):  # the experiment has a sweep of its own
            raise FedprivError(
                f"{run.experiment}: {' '.join(words)} makes {len(configs)} runs in place of "
                f"{combinations(words)}; name every key that the experiment sweeps"
            )
        jobs = [Job.of(config, number) for number, config in enumerate(configs)]
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


def _seeds(seeds: tuple[int, ...]) -> str:
    return f"seed={','.join(map(str, seeds))}"


def _keys(words: list[str] | tuple[str, ...]) -> list[str]:
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


def _row(
    question: str,
    phase: str,
    method: str,
    run: Run,
    place: Mapping[str, str],
    own: Mapping[str, str],
    *,
    metric: str,
    round: int | None = None,
) -> Row:
    last = run.rounds if round is None else round
    observer = run.config["algo"].get("observer", run.observer)  # whom the noise is made for
    certified, claimed = run.final_epsilons(observer)
    value = float(run.metrics.set_index("round")[metric].loc[last])
    return Row(
        question=question,
        phase=phase,
        method=method,
        place=_name(place),
        settings=_name(own),
        seed=run.seed,
        round=last,
        metric=metric,
        value=value,
        certified=certified,
        claimed=claimed,
    )
