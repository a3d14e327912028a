"""Run a replication: choose settings on the tuning seeds, then run the chosen ones on the others.

Every combination of settings has a folder. Started again, finished runs are left alone.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any

import pandas as pd
from omegaconf import DictConfig, OmegaConf

from fedpriv.data.shared import loaded_once
from fedpriv.errors import FedprivError
from fedpriv.papers.ledger.entries import Replication, by_key, combinations
from fedpriv.papers.ledger.results import AUTHORS, COLUMNS, DECIDING, TUNING, chosen
from fedpriv.papers.ledger.validation import with_validation_records
from fedpriv.reports.finished_runs import Run, read_run, sweep_order
from fedpriv.settings.compose import CommandLine, compose_jobs
from fedpriv.settings.words import conf_dir
from fedpriv.sweeps.side_by_side import Job, SideBySide

AT_ONCE = 96
"""Runs that share a process. Those of one seed go together: they draw the same noise once."""
EXTENSIONS = 8
"""How often a grid may be extended."""
Say = Callable[[str], None]
Row = dict[str, Any]


def replicate(run: Replication, folder: Path, say: Say) -> pd.DataFrame:
    """Run everything below a folder, and return the table of `results`, question by question.

    say: receives a line for each method.
    """
    rows: list[Row] = []
    with loaded_once():
        for question, method in product(run.cases, run.methods):
            say(f"{question}: {method}")
            below = folder / question / method.lower().replace(" ", "_")
            one = _Method(run, question, method, below)
            rows += one.tuned() if run.grid(question, method) else one.untuned()
    return pd.DataFrame(rows, columns=COLUMNS)


@dataclass(frozen=True)
class _Method:
    """The runs of one method for one question, below a folder."""

    run: Replication
    question: str
    method: str
    folder: Path

    def untuned(self) -> Iterator[Row]:
        """The rows of the method as it is, at each value of what the paper leaves open."""
        [alternative] = self.run.alternatives(self.question, self.method)
        points = [[*alternative, *point, *self.run.places] for point in _points(self.run.open)]
        yield from self._decisive(points, [_keys(self.run.open)] * len(points), DECIDING)

    def tuned(self) -> Iterator[Row]:
        """The rows of the tuning runs, of the chosen settings, and of the authors'."""
        run, given = self.run, self.run.alternatives(self.question, self.method)
        own = [] if run.chosen_by else self._own_values()
        grid = _merged(run.grid(self.question, self.method), own)
        judged = [
            one for one in run.judged(self.question) if self.method in (one.first, one.second)
        ]
        judges = sorted({(one.metric, one.round) for one in judged})
        tried: dict[str, tuple[list[str], list[str]]] = {}  # words and keys, by settings
        for _ in range(EXTENSIONS):
            rows: list[Row] = []
            points: list[list[str]] = []
            keys_of: list[list[str]] = []
            for alternative in given:
                keys = _keys([*alternative, *grid])
                if len(given) > 1:  # what tells the alternatives apart
                    keys = list(dict.fromkeys([*by_key(alternative[1:]), *keys]))
                own_points = _points([*alternative, *grid])
                points += own_points
                keys_of += [keys] * len(own_points)
            found = self._sweeps([[*point, *run.places] for point in points], run.tuning_seeds)
            for point, keys, runs in zip(points, keys_of, found, strict=True):
                for one in runs:
                    tried[_name(_values(one, keys))] = point, keys
                    chooses = [(run.chosen_by, one.rounds)] if run.chosen_by else judges
                    rows += self._measured(one, keys, TUNING, chooses)
            table = pd.DataFrame(rows, columns=COLUMNS).astype({"value": float})
            best = [chosen(run, one, self.method, table) for one in judged]
            wider = grid if run.chosen_by else _extended(grid, best)
            if wider == grid:
                break
            grid = wider
        else:
            raise FedprivError(f"{self._name}: the best value is still an end of {grid}")
        places = combinations(run.places)
        if (missing := places - min(map(len, best))) > 0:  # it would be judged untuned
            raise FedprivError(
                f"{self._name}: at {missing} of {places} places all settings diverge"
            )
        yield from rows
        fixed = [word for word in run.places if "," not in word]
        settled = dict.fromkeys(item for each in best for item in each.items())
        words = [
            [*tried[settings][0], *fixed, *(place.split(", ") if place else ())]
            for place, settings in settled
        ]
        yield from self._decisive(words, [tried[settings][1] for _, settings in settled], DECIDING)
        if not run.chosen_by:
            yield from self._decisive([[*given[0], *own, *run.places]], [_keys(grid)], AUTHORS)

    @property
    def _name(self) -> str:
        return f"{self.question}, {self.method}"

    def _own_values(self) -> list[str]:
        """The experiment's own values of the keys of a grid: the authors', where they are known."""
        first = self.run.alternatives(self.question, self.method)[0]
        [words] = _points([word.partition(",")[0] for word in [*first, *self.run.places]])
        [config] = self._composed([*words, f"seed={self.run.seeds[0]}"])
        keys = by_key(self.run.grid(self.question, self.method))
        return [f"{key}={OmegaConf.select(config, key):g}" for key in keys]

    def _decisive(
        self, asked: Sequence[Sequence[str]], keys_of: Sequence[list[str]], phase: str
    ) -> Iterator[Row]:
        """The rows of runs on the deciding seeds: every metric at every round."""
        sweeps = self._sweeps(asked, self.run.seeds)
        for words, keys, found in zip(asked, keys_of, sweeps, strict=True):
            wanted = combinations(words) * len(self.run.seeds)
            if len(found) < wanted:  # a mean over the others would flatter the method
                missing = wanted - len(found)
                raise FedprivError(f"{self._name}: {missing} of {wanted} deciding runs diverge")
            for one in found:
                shown = product(sorted(self.run.metrics), one.metrics["round"])
                yield from self._measured(one, keys, phase, shown)

    def _measured(
        self, one: Run, keys: list[str], phase: str, wanted: Iterable[tuple[str, int]]
    ) -> Iterator[Row]:
        """Metrics of a run at rounds, where and how it was run, and its epsilons."""
        observer = one.config["algo"].get("observer", one.status.observer)  # that the noise is for
        certified, claimed = one.final_epsilons(observer)
        values = one.metrics.set_index("round")
        about = {
            "question": self.question,
            "phase": phase,
            "method": self.method,
            "place": _name(_values(one, _keys(self.run.places))),
            "settings": _name(_values(one, keys)),
            "seed": one.seed,
            "certified": certified,
            "claimed": claimed,
        }
        for metric, round in wanted:
            value = float(values[metric].loc[round])
            yield {**about, "round": int(round), "metric": metric, "value": value}

    def _composed(self, words: Sequence[str]) -> list[DictConfig]:
        usual = [f"experiment={self.run.experiment}", *self.run.words]
        usual += self.run.cases[self.question].words
        words = list(by_key([*usual, "checkpoint_every=${rounds}", *words]).values())
        configs = list(compose_jobs(CommandLine.parse(["-m", *words]), conf_dir()))
        if len(configs) != combinations(words):  # the experiment has a sweep of its own
            raise FedprivError(
                f"{self.run.experiment}: {' '.join(words)} makes {len(configs)} runs in place of "
                f"{combinations(words)}; name every key that the experiment sweeps"
            )
        return configs

    def _sweeps(self, asked: Sequence[Sequence[str]], seeds: Sequence[int]) -> list[list[Run]]:
        """The finished runs of sweeps, side by side; those that diverge are missing. Other failures
        are raised.

        Runs on tuning seeds are tested on validation records, unless the training loss chooses.
        """
        validates = seeds == self.run.tuning_seeds and not self.run.chosen_by
        folders = []
        jobs: list[Job] = []
        for words in asked:
            words = [*words, f"seed={','.join(map(str, seeds))}"]
            own = [*self.run.words, *self.run.cases[self.question].words, *words]
            # A changed entry is another sweep.
            about = "\n".join([self.run.experiment, *own, str(validates)])
            folder = self.folder / hashlib.sha256(about.encode()).hexdigest()[:16]
            folders.append(folder)
            if not (folder / "done").exists():
                jobs += [
                    Job.of(config, number, folder)
                    for number, config in enumerate(self._composed(words))
                ]
        if validates:
            for job in jobs:
                held_out = with_validation_records(job.experiment.data)
                job.experiment = replace(job.experiment, data=held_out)
        jobs.sort(key=lambda job: job.experiment.options.seed)
        if jobs:
            SideBySide(AT_ONCE).launch(jobs, quiet=True)
        return [_finished(folder) for folder in folders]


def _finished(folder: Path) -> list[Run]:
    """The finished runs of a sweep that has ended."""
    (folder / "done").touch()
    runs = [below for below in folder.iterdir() if below.is_dir()]
    return [
        found
        for one in sorted(runs, key=sweep_order)
        if (found := read_run(one, warn=lambda text: None))
    ]


def _points(words: Sequence[str]) -> list[list[str]]:
    """All combinations of the values of overrides, as overrides with one value each."""
    values = [
        [f"{key}={value}" for value in text.split(",")]
        for key, text in (word.split("=", 1) for word in words)
    ]
    return [list(each) for each in product(*values)]


def _merged(grid: Sequence[str], own: Sequence[str]) -> list[str]:
    """A grid with further values."""
    further = by_key(own)
    return [
        _with(key, f"{word},{further.get(key, word)}".replace(f"{key}=", "").split(","))
        for key, word in by_key(grid).items()
    ]


def _with(key: str, values: Iterable[float | str]) -> str:
    """An override with values in ascending order."""
    return f"{key}={','.join(f'{value:g}' for value in sorted({*map(float, values)}))}"


def _extended(grid: Sequence[str], best: Sequence[Mapping[str, str]]) -> list[str]:
    """A grid with one more value at each end that is chosen, by the ratio of the last two."""
    taken = {word for each in best for settings in each.values() for word in settings.split(", ")}
    wider = []
    for word in grid:
        key, _, text = word.partition("=")
        values = [float(each) for each in text.split(",")]
        ends = [(values[0], values[1]), (values[-1], values[-2])] if values[1:] else []
        values += [end * end / beside for end, beside in ends if f"{key}={end:g}" in taken]
        wider.append(_with(key, values))
    return wider


def _keys(words: Iterable[str]) -> list[str]:
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
