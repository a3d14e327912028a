"""The top-level keys of a run, and what no epsilon covers whatever its components are."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from fedpriv.errors import require
from fedpriv.training.description import TRAINERS, Execution

ALL = "all"
WITH_ALL = f"with private={ALL}"
CHOSEN = "settings were chosen without looking at the records, or by charged results alone"
"""What a run with `private=all` rests on, beside its certificate."""
BY_METRICS = "choosing a round or a run by its metrics is not accounted"
ALWAYS_UNCOVERED = (
    "hyper-parameters chosen on private data are not accounted",
    BY_METRICS,
    "diagnostics are not private: see labels, for the columns of metrics.csv among others",
)
SPLIT_AND_SCALING = "splits, scaling and sub-sampling of the data set are not accounted"
SEEDED = (
    "noise and sampling come from a seed, so this model is NOT private; randomness=system draws "
    "them from the operating system"
)


@dataclass(frozen=True)
class Stop:
    """Early stopping by private scores of test persons (`fedpriv.runs.stopping`).

    target: epsilon of all evaluations together, for each test person; None: no early stopping.
    every: rounds between two evaluations.
    patience: evaluations in a row without a better score, after which the run ends.
    metric: score that is compared; None: the main metric of the data set.
    population: whom of the ledger the test records are of.
    """

    target: float | None = None
    every: int = 5
    patience: int = 2
    metric: str | None = None
    population: str | None = None


@dataclass(frozen=True)
class RunOptions:
    """Top-level keys that belong to no group."""

    rounds: int
    seed: int
    device: str
    resume: str | None
    randomness: str
    evaluate_every: int
    evaluate_training: bool
    checkpoint_every: int
    optimum: float | None = None
    quiet: bool = False
    evaluation: str = "exact"
    references: bool = True
    trainer: str = "auto"
    workers: int = 1
    ledger: str | None = None
    population: str | None = None
    private: str | None = None
    stop: Stop = field(default_factory=Stop)

    def __post_init__(self) -> None:
        for key in ("rounds", "evaluate_every", "checkpoint_every"):
            require(getattr(self, key) >= 1, key, getattr(self, key), "a positive number of rounds")
        require(self.seed >= 0, "seed", self.seed, "zero or a positive integer")
        evaluated = self.optimum is None or self.evaluate_training
        require(evaluated, "optimum", self.optimum, "null, unless evaluate_training=true")
        known = self.evaluation in ("exact", "none")
        require(known, "evaluation", self.evaluation, "exact or none")
        named = self.randomness in ("simulation", "system")
        require(named, "randomness", self.randomness, "simulation or system")
        known = re.fullmatch(r"auto|cpu|cuda(:\d+)?", self.device) is not None
        require(known, "device", self.device, "auto, cpu, cuda or cuda:<number>")
        require(self.trainer in TRAINERS, "trainer", self.trainer, ", ".join(TRAINERS))
        real = self.ledger is None or self.system or self.resume is not None
        allowed = "null for a simulation; a ledger is of persons: randomness=system"
        require(real, "ledger", self.ledger, allowed)
        named = self.population is None or self.ledger is not None
        require(named, "population", self.population, "null, unless ledger=FILE has populations")
        require(self.workers >= 1, "workers", self.workers, "a positive number of threads")
        stop = self.stop
        idle = stop.target is None and stop != Stop()
        require(not idle, "stop.target", "null", "the epsilon that all evaluations may cost")
        fits = 1 <= stop.every <= self.rounds or stop.target is None
        require(fits, "stop.every", stop.every, f"1 to {self.rounds}, the number of rounds")
        require(stop.patience >= 1, "stop.patience", stop.patience, "a number of evaluations")
        require(self.private in (None, ALL), "private", self.private, f"null or {ALL}")
        if self.private is not None:
            needed = {"randomness": "system", "evaluation": "none", "evaluate_training": False}
            for key, value in needed.items():
                require(getattr(self, key) == value, key, getattr(self, key), f"{value} {WITH_ALL}")

    @property
    def system(self) -> bool:
        """Whether noise and samples come from the operating system (not repeatable)."""
        return self.randomness == "system"

    @property
    def execution(self) -> Execution:
        """How local training is computed."""
        return Execution(self.trainer, self.workers)
