"""A sweep with a random number of runs: `fedpriv -m ... hydra/sweeper=random_number`.

Choosing the best of several runs uses the data once more. The cost of the choice is known when the
number of runs is random, and each run draws its settings from a list
(`fedpriv.accountants.selection`). The cost covers one released model: the best by a
metric of the released model on records of nobody who trains (`fedpriv.runs.labels`). The metric is
fixed with the draw. It does not cover observers who see other runs or their number.

With `stop.target`, no exact metric is computed: the private score of each run's released model
chooses (`fedpriv.runs.stopping`). The theorem then holds twice. A run with its evaluations is one
mechanism, which releases a model and its score. For users who train, its curve is that of all
planned rounds: scores are made of the models and of others' records. For test persons it is that of
all planned evaluations, whatever the models.

All runs have the same law, as the theorem asks for: with noise from the operating system they share
one seed, hence one split and one start, and a released model does not tell its number.

The draw is stored in the sweep's folder, because drawing again after an interruption would be
another choice.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from fedpriv.accountants.events import RELEASED_MODEL
from fedpriv.accountants.renyi import ORDERS, convert, rdp_curve
from fedpriv.accountants.selection import TruncatedNegativeBinomial
from fedpriv.data.base import DataSet
from fedpriv.errors import FedprivError, require
from fedpriv.runs.checkpoint import Origin
from fedpriv.runs.epsilon_forecast import EpsilonForecast
from fedpriv.runs.labels import RELEASED, metric_label
from fedpriv.runs.run_evaluation import planned_evaluation, score_of
from fedpriv.settings.experiment import Experiment
from fedpriv.util.durable_files import replace_file
from fedpriv.util.streams import SETUP
from fedpriv.util.untrusted_files import as_type, read_json

DRAW = "trials.json"
TUNABLE = ("class_weights", "metric", "missing", "outside")
"""Keys of data that change neither who is a person nor who trains."""
MAX_MEAN = 10**4
"""A larger average number of runs is an error."""


@dataclass(frozen=True)
class RandomNumber:
    """The sweeper.

    mean: average number of runs.
    shape: shape of the distribution; 1: geometric, 0: logarithmic.
    metric: column of metrics.csv that chooses the best run, fixed with the draw; None: the main
        metric of the data set, or `stop.metric` where private scores choose.
    """

    mean: float
    shape: float
    metric: str | None = None

    def __post_init__(self) -> None:
        allowed = f"more than 1 run, up to {MAX_MEAN}"
        require(1 < self.mean <= MAX_MEAN, "hydra.sweeper.mean", self.mean, allowed)
        require(0 <= self.shape <= 100, "hydra.sweeper.shape", self.shape, "0 to 100")

    @property
    def distribution(self) -> TruncatedNegativeBinomial:
        return TruncatedNegativeBinomial(self.mean, self.shape)

    def draw(
        self,
        folder: Path,
        settings: Sequence[Sequence[str]],
        experiments: Sequence[Experiment],
        configs: Sequence[Mapping[str, Any]],
    ) -> SweepDraw:
        """The draw of a sweep, or the stored draw of an earlier process.

        folder: the sweep's folder.
        settings: words of each setting.
        experiments: experiment of each setting.
        configs: resolved configuration of each setting.

        Raises FedprivError when `folder` has the draw of another sweep, ConfigError when settings
        differ in seed, randomness or persons.
        """
        first = experiments[0].options
        for exp, words in zip(experiments, settings):
            alike = _persons(exp.data) == _persons(experiments[0].data)
            allowed = f"the same persons in all settings; of data only {', '.join(TUNABLE)} differ"
            require(alike, "data", type(exp.data).__name__, f"{allowed} ({' '.join(words)})")
            for key in ("seed", "randomness"):
                value = getattr(exp.options, key)
                allowed = f"the same for all settings ({' '.join(words)})"
                require(value == getattr(first, key), key, value, allowed)
        evaluations = [
            planned_evaluation(exp, config).experiment
            for exp, config in zip(experiments, configs)
            if exp.options.stop.target is not None
        ]
        _require(len(evaluations) in (0, len(settings)), "stop.target in all settings or in none")
        asked = Asked(
            self.mean,
            self.shape,
            first.seed,
            tuple(tuple(words) for words in settings),
            self._chosen_by(experiments),
            first.system,
        )
        if (folder / DRAW).exists():
            known = SweepDraw.read(folder)
            if known.asked != asked:
                raise FedprivError(
                    f"{folder / DRAW}: holds another sweep's draw; use another hydra.sweep.dir"
                )
            return known
        rng = experiments[0].streams.secret("number of runs", SETUP)
        number = self.distribution.draw(lambda: float(rng.random(1)[0]))
        draw = SweepDraw(
            asked,
            tuple(int(uniform * len(settings)) for uniform in rng.random(number)),
            tuple(exp.options.rounds for exp in experiments),
            tuple(map(configured, configs)),
            self.cost(experiments),
            self.cost(evaluations) if evaluations else None,
        )
        folder.mkdir(parents=True, exist_ok=True)
        replace_file(folder / DRAW, (json.dumps(asdict(draw), indent=2) + "\n").encode())
        return draw

    def _chosen_by(self, experiments: Sequence[Experiment]) -> str:
        """The metric that chooses. Raises ConfigError for one that looks at private records without
        noise, and where test persons train, so that one pays for both."""
        main = experiments[0].data.task.metric
        scored = experiments[0].options.stop.target is not None
        key = "hydra.sweeper.metric"
        allowed = "null: stop.metric is the score that chooses"
        require(not scored or self.metric is None, key, self.metric, allowed)
        metrics = {self.metric or score_of(exp) for exp in experiments}
        require(len(metrics) == 1, key, "null", "a metric that all settings have")
        [metric] = metrics
        if scored:
            apart = all(exp.data.disjoint_test for exp in experiments)
            _require(apart, "data of which no test person trains")
            return metric
        private = any(exp.data.private_test for exp in experiments)
        label = metric_label(metric, main=main, disjoint=True, certified=True, private=private)
        allowed = f"a metric of the released model on test records, such as {main}"
        scores = "a private score, since persons are tested: stop.target=1 evaluation=none"
        require(label == RELEASED, key, metric, scores if private else allowed)
        return metric

    def cost(self, experiments: Sequence[Experiment]) -> Cost:
        """The cost of releasing the best model, whichever settings it has. The unit is the user if
        there is a certificate for users.

        Raises ConfigError when a released model has no certificate, when its records are read
        without noise before the first event, or when settings protect different units.
        """
        largest = np.zeros(len(ORDERS))
        protected = set()
        for exp in experiments:
            for text in exp.data.read_without_noise:
                _require(False, f"records that nothing is read off without noise: {text}")
            compositions = EpsilonForecast.of(exp).compositions()
            units = [key for key in compositions if key[0] == RELEASED_MODEL]
            units.sort(key=lambda key: (key[1] != "user", key[3] != 1))
            _require(bool(units), f"{exp.algo.label}: certifies no released model")
            key = (*units[0][:4], exp.accountant.delta)
            _require(key[3] == 1, "no groups of records: their curves do not convert")
            protected.add(key)
            groups = [compositions[unit] for unit in units if unit[:4] == key[:4]]
            for runs in chain.from_iterable(groups):
                largest = np.maximum(largest, rdp_curve(runs, key[2], ORDERS))
        _require(len(protected) == 1, "settings that protect the same unit")
        [(_, unit, adjacency, _, delta)] = protected
        selected = self.distribution.selected(np.array(ORDERS), largest)
        certified = convert(ORDERS, selected, delta)
        _require(math.isfinite(certified), "settings with enough noise for a finite epsilon")
        return Cost(certified, convert(ORDERS, largest, delta), unit, adjacency, delta)


def _persons(data: DataSet) -> list[Any]:
    """What decides who is a person, and who trains."""
    names = (one.name for one in fields(data) if one.name not in TUNABLE)
    return [type(data), *(getattr(data, name) for name in names)]


def configured(config: Mapping[str, Any]) -> dict[str, str]:
    """Top-level key of a configuration: digest of its value, without the seed, in which the runs of
    a setting differ."""
    found = Origin.of_values(config).config
    return {key: digest for key, digest in found.items() if key != "seed"}


def _require(condition: bool, allowed: str) -> None:
    require(condition, "hydra/sweeper", "random_number", allowed)


@dataclass(frozen=True)
class Asked:
    """`RandomNumber` with its metric, the first seed, and the words of each setting.

    system: whether noise comes from the operating system; all runs then have the first seed.
    """

    mean: float
    shape: float
    seed: int
    settings: tuple[tuple[str, ...], ...]
    metric: str
    system: bool = False


@dataclass(frozen=True)
class Cost:
    """What the choice costs.

    certified: epsilon of the choice.
    one: that of the costliest single run.
    unit, adjacency, delta: of both.
    """

    certified: float
    one: float
    unit: str
    adjacency: str
    delta: float


@dataclass(frozen=True)
class SweepDraw:
    """The runs of a sweep.

    asked: the sweeper's arguments, seed and settings.
    chosen: index of each run's setting.
    rounds: charged rounds of each setting.
    configs: top-level key: digest of its value, for each setting.
    cost: see `RandomNumber.cost`.
    tests_cost: what the choice costs test persons; None: exact metrics choose.
    """

    asked: Asked
    chosen: tuple[int, ...]
    rounds: tuple[int, ...]
    configs: tuple[Mapping[str, str], ...]
    cost: Cost
    tests_cost: Cost | None = None

    @staticmethod
    def read(folder: Path) -> SweepDraw:
        """The draw in a sweep's folder. Raises FedprivError when it cannot be read."""
        try:
            draw: SweepDraw = as_type(SweepDraw, read_json(folder / DRAW))
            settings = len(draw.asked.settings)
            fits = all(0 <= place < settings for place in draw.chosen)
            if not fits or {len(draw.rounds), len(draw.configs)} != {settings}:
                raise ValueError(f"expected those of {settings} settings")
        except (OSError, ValueError) as error:
            raise FedprivError(f"{folder / DRAW} is damaged ({error})") from error
        return draw

    def changed(self, number: int, config: Mapping[str, Any]) -> list[str]:
        """Top-level keys by which a run's configuration differs from the one that was drawn.

        number: of the run.
        config: its resolved configuration.
        """
        drawn = self.configs[self.chosen[number]]
        found = configured(config)
        keys = sorted(drawn.keys() | found.keys())
        return [key for key in keys if drawn.get(key) != found.get(key)]

    def seed(self, number: int) -> int:
        """The seed of a run."""
        return self.asked.seed + (0 if self.asked.system else number)

    def words(self) -> Iterator[list[str]]:
        """The words of each run: its setting and its own seed."""
        for number, place in enumerate(self.chosen):
            yield [*self.asked.settings[place], f"seed={self.seed(number)}"]
