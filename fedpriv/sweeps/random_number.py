"""A sweep with a random number of runs: `fedpriv -m ... hydra/sweeper=random_number`.

Choosing the best of several runs uses the data once more. The cost of the choice is known when the
number of runs is random, and each run draws its settings from a list
(`fedpriv.accountants.selection`). The cost covers one released model: the best by a
metric of the released model on records of nobody who trains (`fedpriv.runs.labels`). The metric is
fixed with the draw. It does not cover observers who see other runs or their number.

The draw is stored in the sweep's folder, because drawing again after an interruption would be
another choice.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from fedpriv.accountants.events import RELEASED_MODEL
from fedpriv.accountants.renyi import ORDERS, convert, rdp_curve
from fedpriv.accountants.selection import TruncatedNegativeBinomial
from fedpriv.errors import FedprivError, require
from fedpriv.runs.checkpoint import Origin
from fedpriv.runs.epsilon_forecast import EpsilonForecast
from fedpriv.runs.labels import RELEASED, metric_label
from fedpriv.settings.experiment import Experiment
from fedpriv.util.durable_files import replace_file
from fedpriv.util.streams import SETUP
from fedpriv.util.untrusted_files import as_type, read_json

DRAW = "trials.json"
MAX_MEAN = 10**4
"""A larger average number of runs is an error."""


@dataclass(frozen=True)
class RandomNumber:
    """The sweeper.

    mean: average number of runs.
    shape: shape of the distribution; 1: geometric, 0: logarithmic.
    metric: column of metrics.csv that chooses the best run, fixed with the draw; None: the main
        metric of the data set.
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
        configs: Sequence[str],
    ) -> SweepDraw:
        """The draw of a sweep, or the stored draw of an earlier process.

        folder: the sweep's folder.
        settings: words of each setting.
        experiments: experiment of each setting.
        configs: resolved configuration of each setting, as YAML.

        Raises FedprivError when `folder` has the draw of another sweep, ConfigError when settings
        differ in seed or randomness.
        """
        first = experiments[0].options
        for exp, words in zip(experiments, settings):
            options = exp.options
            allowed = "a single value: run number n uses seed + n"
            require(options.seed == first.seed, "seed", options.seed, allowed)
            allowed = f"the same for all settings ({' '.join(words)})"
            same = options.randomness == first.randomness
            require(same, "randomness", options.randomness, allowed)
        listed = tuple(tuple(words) for words in settings)
        asked = Asked(self.mean, self.shape, first.seed, listed, self._chosen_by(experiments))
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
        )
        folder.mkdir(parents=True, exist_ok=True)
        replace_file(folder / DRAW, (json.dumps(asdict(draw), indent=2) + "\n").encode())
        return draw

    def _chosen_by(self, experiments: Sequence[Experiment]) -> str:
        """The metric that chooses. Raises ConfigError for one that looks at private records."""
        main = experiments[0].data.task.metric
        same = all(exp.data.task.metric == main for exp in experiments)
        key = "hydra.sweeper.metric"
        require(same or self.metric is not None, key, "null", "a metric that all settings have")
        metric = self.metric or main
        private = any(exp.data.private_test for exp in experiments)
        label = metric_label(metric, main=main, disjoint=True, certified=True, private=private)
        allowed = f"a metric of the released model on test records, such as {main}"
        require(label == RELEASED, key, metric, allowed)
        return metric

    def cost(self, experiments: Sequence[Experiment]) -> Cost:
        """The cost of releasing the best model, whichever settings it has. The unit is the user if
        there is a certificate for users.

        Raises ConfigError when a released model has no certificate, when its records are read
        without noise before the first event, or when settings protect different units.
        """
        largest = np.zeros(len(ORDERS))
        about = None
        for exp in experiments:
            for text in exp.data.read_without_noise:
                _require(False, f"records that nothing is read off without noise: {text}")
            compositions = EpsilonForecast.of(exp).compositions()
            units = [key for key in compositions if key[0] == RELEASED_MODEL]
            units.sort(key=lambda key: (key[1] != "user", key[3] != 1))
            _require(bool(units), f"{exp.algo.label}: certifies no released model")
            key = (*units[0][:4], exp.accountant.delta)
            _require(about in (None, key), "settings that protect the same unit")
            _require(key[3] == 1, "no groups of records: their curves do not convert")
            about = key
            groups = [compositions[unit] for unit in units if unit[:4] == key[:4]]
            for runs in chain.from_iterable(groups):
                largest = np.maximum(largest, rdp_curve(runs, key[2], ORDERS))
        _require(about is not None, "at least one setting")
        assert about is not None
        _, unit, adjacency, _, delta = about
        selected = self.distribution.selected(np.array(ORDERS), largest)
        certified = convert(ORDERS, selected, delta)
        _require(math.isfinite(certified), "settings with enough noise for a finite epsilon")
        return Cost(certified, convert(ORDERS, largest, delta), unit, adjacency, delta)


def configured(config_yaml: str) -> dict[str, str]:
    """Top-level key: digest of its value, without the seed, in which the runs of a setting
    differ."""
    return _without_seed(Origin.of(config_yaml))


def _without_seed(origin: Origin) -> dict[str, str]:
    return {key: digest for key, digest in origin.config.items() if key != "seed"}


def _require(condition: bool, allowed: str) -> None:
    require(condition, "hydra/sweeper", "random_number", allowed)


@dataclass(frozen=True)
class Asked:
    """`RandomNumber` with its metric, the first seed, and the words of each setting."""

    mean: float
    shape: float
    seed: int
    settings: tuple[tuple[str, ...], ...]
    metric: str


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
    """

    asked: Asked
    chosen: tuple[int, ...]
    rounds: tuple[int, ...]
    configs: tuple[Mapping[str, str], ...]
    cost: Cost

    @staticmethod
    def read(folder: Path) -> SweepDraw:
        """The draw in a sweep's folder. Raises FedprivError when it cannot be read."""
        try:
            draw: SweepDraw = as_type(SweepDraw, read_json(folder / DRAW))
            settings = len(draw.asked.settings)
            if not all(0 <= place < settings for place in draw.chosen):
                raise ValueError(f"chosen: expected places of {settings} settings")
            if not len(draw.rounds) == len(draw.configs) == settings:
                raise ValueError(f"rounds and configs: expected those of {settings} settings")
        except (OSError, ValueError) as error:
            raise FedprivError(f"{folder / DRAW} is damaged ({error})") from error
        return draw

    def changed(self, number: int, config: Mapping[str, Any]) -> list[str]:
        """Top-level keys by which a run's configuration differs from the one that was drawn.

        number: of the run.
        config: its resolved configuration.
        """
        drawn = self.configs[self.chosen[number]]
        found = _without_seed(Origin.of_values(config))
        keys = sorted(drawn.keys() | found.keys())
        return [key for key in keys if drawn.get(key) != found.get(key)]

    def words(self) -> Iterator[list[str]]:
        """The words of each run: its setting and its own seed."""
        for number, place in enumerate(self.chosen):
            yield [*self.asked.settings[place], f"seed={self.asked.seed + number}"]
