"""A sweep with a random number of runs: `fedpriv -m ... hydra/sweeper=random_number`.

Choosing the best of some runs looks at the data once more. If there is a random number of them,
each with settings drawn from those listed, the cost of the choice is known
(`fedpriv.accountants.selection`). It covers one model that is released, the best by a metric of the
released model on records of nobody who trains (`fedpriv.runs.labels`). The metric is fixed with the
draw. Whoever sees other runs, or how many there were, is not covered.

The draw is kept in the sweep's folder, since to draw again after an interruption would be another
choice.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fedpriv.accountants.events import RELEASED_MODEL
from fedpriv.accountants.renyi import ORDERS, convert, rdp_curve
from fedpriv.accountants.selection import TruncatedNegativeBinomial
from fedpriv.errors import ConfigError, FedprivError, require
from fedpriv.runs.labels import RELEASED, metric_label
from fedpriv.util.durable_files import replace_file
from fedpriv.util.streams import SETUP

if TYPE_CHECKING:
    from fedpriv.settings.experiment import Experiment

NAME = "trials.json"
GREATEST = 10**4
"""More runs than this on average are a mistake."""


@dataclass(frozen=True)
class RandomNumber:
    """mean: runs on average.
    shape: of their distribution; 1: geometric, 0: logarithmic.
    metric: column of metrics.csv that chooses the best run, fixed with the draw; None: the main
        metric of the data set.
    """

    mean: float
    shape: float
    metric: str | None = None

    def __post_init__(self) -> None:
        require(
            1 < self.mean <= GREATEST,
            "hydra.sweeper.mean",
            self.mean,
            f"more than 1 run, up to {GREATEST}",
        )
        require(0 <= self.shape <= 100, "hydra.sweeper.shape", self.shape, "0 to 100")

    @property
    def distribution(self) -> TruncatedNegativeBinomial:
        return TruncatedNegativeBinomial(self.mean, self.shape)

    def drawn(
        self, folder: Path, settings: Sequence[Sequence[str]], experiments: Sequence[Experiment]
    ) -> SweepDraw:
        """The draw of a sweep among `settings`, each a job's words; that of an earlier process, if
        `folder` has one.

        Raises FedprivError for a folder with another sweep's draw, ConfigError for settings that
        draw seeds.
        """
        first = experiments[0]
        for exp, words in zip(experiments, settings):
            one = exp.options.seed == first.options.seed
            require(
                one,
                "seed",
                exp.options.seed,
                "a single one: each run has its own seed, counted from it",
            )
            system = exp.options.randomness == first.options.randomness
            require(
                system,
                "randomness",
                exp.options.randomness,
                f"the same for all settings ({' '.join(words)})",
            )
        asked = {
            **asdict(self),
            "metric": self._chosen_by(experiments),
            "seed": first.options.seed,
            "settings": [list(words) for words in settings],
        }
        if (folder / NAME).exists():
            known = SweepDraw.read(folder)
            if known.asked != asked:
                raise FedprivError(
                    f"{folder / NAME}: holds another sweep's draw; name another hydra.sweep.dir"
                )
            return known
        rng = first.streams.secret("number of runs", SETUP)
        number = self.distribution.draw(lambda: float(rng.random(1)[0]))
        chosen = [int(uniform * len(settings)) for uniform in rng.random(number)]
        drawn = SweepDraw(
            asked, chosen, [exp.options.rounds for exp in experiments], self.cost(experiments)
        )
        folder.mkdir(parents=True, exist_ok=True)
        replace_file(folder / NAME, (json.dumps(asdict(drawn), indent=2) + "\n").encode())
        return drawn

    def _chosen_by(self, experiments: Sequence[Experiment]) -> str:
        """The metric that chooses. Raises ConfigError for one that looks at private records."""
        main = experiments[0].data.task.metric
        same = all(exp.data.task.metric == main for exp in experiments)
        key = "hydra.sweeper.metric"
        require(same or self.metric is not None, key, "null", "a metric that all settings have")
        metric = self.metric or main
        label = metric_label(metric, main=main, disjoint=True, certified=True)
        allowed = f"a metric of the released model on test records, such as {main}"
        require(label.name == RELEASED, key, metric, allowed)
        return metric

    def cost(self, experiments: Sequence[Experiment]) -> dict[str, Any]:
        """What the release of the best costs, whichever settings it has: certified epsilon, that of
        the costliest single run by the same accounting, unit, adjacency and delta. The unit is the
        user where there is one.

        Raises ConfigError where nothing is known about the released model, or where settings speak
        of other units.
        """
        from fedpriv.runs.epsilon_forecast import EpsilonForecast

        orders = np.array(ORDERS)
        largest = np.zeros(len(ORDERS))
        about = None
        for exp in experiments:
            found = {
                key: parts
                for key, parts in EpsilonForecast.of(exp).compositions().items()
                if key[0] == RELEASED_MODEL
            }
            units = sorted(found, key=lambda key: (key[1] != "user", key[3] != 1))
            require(
                bool(units),
                "hydra/sweeper",
                "random_number",
                f"{exp.algo.label}: certifies no released model",
            )
            key = (*units[0], exp.accountant.delta)
            require(
                about in (None, key),
                "hydra/sweeper",
                "random_number",
                "settings that protect the same unit",
            )
            require(
                key[3] == 1,
                "hydra/sweeper",
                "random_number",
                "no groups of records: their curves do not convert",
            )
            about = key
            for runs in found[units[0]]:
                largest = np.maximum(largest, rdp_curve(runs, key[2], ORDERS))
        if about is None:
            raise ConfigError("hydra/sweeper", "random_number", "at least one setting")
        _, unit, adjacency, _, delta = about
        selected = self.distribution.selected(orders, largest)
        certified = convert(ORDERS, selected, delta)
        one = convert(ORDERS, largest, delta)
        return {
            "certified": certified,
            "one": one,
            "unit": unit,
            "adjacency": adjacency,
            "delta": delta,
        }


@dataclass(frozen=True)
class SweepDraw:
    """asked: what the sweep was asked for.
    chosen: each run's place among the settings.
    rounds: those of each setting that are charged.
    cost: see `RandomNumber.cost`.
    """

    asked: dict[str, Any]
    chosen: list[int]
    rounds: list[int]
    cost: dict[str, Any]

    @staticmethod
    def read(folder: Path) -> SweepDraw:
        """That of a sweep's folder. Raises FedprivError when it cannot be read."""
        try:
            return SweepDraw(**json.loads((folder / NAME).read_text()))
        except (OSError, ValueError, TypeError) as error:
            raise FedprivError(f"{folder / NAME} is damaged ({error})") from error

    def words(self) -> Iterator[list[str]]:
        """Each run's words: its settings, and a seed of its own."""
        for number, place in enumerate(self.chosen):
            yield [*self.asked["settings"][place], f"seed={self.asked['seed'] + number}"]
