"""The runs of a comparison, all composed, checked and calibrated before the first starts; and the
choice of each method's setting from its grid, by other seeds than the reported ones."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from fedpriv.aggregation.epsilon_target import SolvedTarget
from fedpriv.comparisons.request import Method, Request, file_name
from fedpriv.errors import ConfigError, FedprivError, require
from fedpriv.reports.finished_runs import Run, read_run
from fedpriv.reports.summary import best_by
from fedpriv.runs.epsilon_forecast import EpsilonForecast
from fedpriv.settings.compose import CommandLine, each_job
from fedpriv.settings.words import conf_dir
from fedpriv.sweeps.side_by_side import Job, SideBySide

NO_CHOICE = "every setting of its grid has a run that diverged"


@dataclass(frozen=True)
class Trial:
    """One run.

    method: whose run it is.
    setting: overrides of the tuned keys.
    seed: of the run.
    tunes: whether it chooses a setting; its numbers are not reported.
    """

    method: Method
    setting: tuple[str, ...]
    seed: int
    tunes: bool

    @property
    def place(self) -> str:
        """Its folder below that of the comparison."""
        setting = f"{file_name(','.join(self.setting))}/" if self.setting else ""
        part = "tuning" if self.tunes else "runs"
        return f"{part}/{file_name(self.method.name)}/{setting}seed={self.seed}"


def tuning_trials(request: Request) -> list[Trial]:
    """A run for each setting and tuning seed of the methods that have several settings."""
    return [
        Trial(method, setting, seed, tunes=True)
        for method in request.methods
        if len(method.grid) > 1
        for setting in method.grid
        for seed in request.tuning_seeds
    ]


def reported_trials(request: Request, chosen: dict[str, tuple[str, ...]]) -> list[Trial]:
    """A run for each method that has a setting, and each reported seed.

    chosen: name of a method: its setting.
    """
    return [
        Trial(one, chosen[one.name], seed, tunes=False)
        for one in request.methods
        if one.name in chosen
        for seed in request.seeds
    ]


def jobs(request: Request, trials: Sequence[Trial]) -> list[Job]:
    """The job of each trial. Raises FedprivError that names the method for wrong settings."""
    return _jobs(request, trials, private_methods(request))


@lru_cache(maxsize=1)
def private_methods(request: Request) -> frozenset[str]:
    """Names of the methods whose noise is solved for the epsilon. The others have none, and are
    compared as lines without privacy. Raises FedprivError like `jobs`."""
    if request.epsilon == math.inf:
        return frozenset()
    trials = [
        Trial(method, method.grid[0], request.seeds[0], tunes=False) for method in request.methods
    ]
    made = zip(trials, _jobs(request, trials, frozenset()))
    found = frozenset(one.method.name for one, job in made if job.experiment.mechanism.clips)
    require(bool(found), "epsilon", request.epsilon, "a method with noise, such as algo=uldp_avg")
    return found


def _jobs(request: Request, trials: Sequence[Trial], private: frozenset[str]) -> list[Job]:
    """private: names of the methods with a target."""
    line = CommandLine(["hydra/launcher=side_by_side"], True, request.config_dir)
    target = [f"accountant.target={request.epsilon!r}"]
    words = (
        [
            *request.words,
            *(target if one.method.name in private else []),
            *one.method.words,
            *one.setting,
            f"seed={one.seed}",
        ]
        for one in trials
    )
    composed = each_job(line, conf_dir(), words)
    made: list[Job] = []
    for number, trial in enumerate(trials):
        try:
            config = next(composed)
            _require_no_sweep(config.hydra.sweeper.get("params") or {}, request, trial.method)
            job = Job.of(config, number, request.folder)
        except FedprivError as error:
            raise _named(error, trial, request.epsilon) from error
        made.append(replace(job, folder=request.folder / trial.place))
    return made


def _require_no_sweep(params: Iterable[str], request: Request, method: Method) -> None:
    """Raise FedprivError when an experiment's file sweeps a key that the command line leaves
    open."""
    said = {word.partition("=")[0] for word in (*request.words, *method.words)} | {"seed"}
    for key in params:
        if key not in said:
            raise FedprivError(f"{key}: the experiment's file sweeps it; name its values")


def _named(error: FedprivError, trial: Trial, epsilon: float) -> FedprivError:
    text = str(error)
    if text.startswith("accountant.target="):
        return _not_calibrated(trial.method, epsilon, error)
    hint = ""
    if trial.setting and any(text.startswith(word.partition("=")[0]) for word in trial.setting):
        hint = "; --tune METHOD:KEY=VALUES tunes a single method"
    return FedprivError(f"{trial.method.name}: {text}{hint}")


def _not_calibrated(method: Method, epsilon: float, error: FedprivError) -> FedprivError:
    why = str(error).removeprefix(f"accountant.target={epsilon:g}: ").removeprefix("null: ")
    return FedprivError(f"{method.name}: cannot be calibrated to epsilon={epsilon:g}: {why}")


Solved = dict[tuple[str, tuple[str, ...]], SolvedTarget]
"""Name of a method and its setting: what its epsilon means, with its noise."""


def calibrated(request: Request) -> Solved:
    """The noise of every setting of every private method, for the first reported seed.

    Raises FedprivError for a setting that is wrong or whose noise cannot be solved, and for methods
    that promise different things.
    """
    trials = [
        Trial(method, setting, request.seeds[0], tunes=False)
        for method in request.methods
        for setting in method.grid
    ]
    private = private_methods(request)
    found: Solved = {}
    means: dict[str, str] = {}
    for trial, job in zip(trials, jobs(request, trials)):
        if trial.method.name not in private:
            continue
        try:
            solved = EpsilonForecast.of(job.experiment).target
        except ConfigError as error:
            raise _not_calibrated(trial.method, request.epsilon, error) from error
        assert solved is not None
        found[trial.method.name, trial.setting] = solved
        user = job.experiment.data.user_is
        title = " ".join([trial.method.name, *trial.setting])
        means[title] = f"{promise(solved)}{f' ({user})' if user else ''}"
    if not request.mixed:
        _require_same_promise(means)
    return found


def _require_same_promise(means: dict[str, str]) -> None:
    """Raise FedprivError for methods whose epsilons protect different units or users, have another
    delta, or are against different observers: equal numbers would not mean equal privacy.

    means: name of each method with its setting: what its epsilon promises.
    """
    (first, one), *others = means.items()
    for name, other in others:
        if other != one:
            raise FedprivError(
                f"epsilon of {first} is for {one}, of {name} for {other}: equal numbers would not "
                "mean equal privacy; compare them separately, or use --mixed"
            )


def promise(solved: SolvedTarget) -> str:
    """What an epsilon protects, how surely, and from whom."""
    return (
        f"a {solved.unit} ({solved.adjacency}) at delta = {solved.delta:g} against the "
        f"{solved.observer}"
    )


def finished(request: Request, trials: Sequence[Trial], *, quiet: bool) -> Iterator[Run | None]:
    """Run the trials side by side; then each trial's run, or None if it diverged. Runs that the
    folder has finished are not repeated. Raises FedprivError when runs fail for another reason."""
    made = jobs(request, trials)
    SideBySide(request.at_once).launch(made, quiet=quiet, sweep=request.folder)
    return (None if job.failure is not None else read_run(job.folder) for job in made)


@dataclass(frozen=True)
class Choice:
    """The setting of one method.

    setting: overrides of the tuned keys; empty without tuning.
    among: number of settings that were tried, without those of which a run diverged.
    diverged: number of settings of which a run diverged.
    mean: of the metric over the tuning seeds; None without tuning.
    """

    setting: tuple[str, ...]
    among: int = 1
    diverged: int = 0
    mean: float | None = None


def choose(
    methods: Sequence[Method],
    trials: Sequence[Trial],
    runs: Sequence[Run | None],
    metric: str | None,
) -> dict[str, Choice]:
    """Name of each method: its setting with the best mean over the tuning seeds.

    trials: that tune.
    runs: of the trials; None for one that diverged, whose setting is left out.
    metric: None: the data set's main metric.

    A method of which every setting has a run that diverged has none.
    """
    found = {}
    for method in methods:
        if len(method.grid) == 1:
            found[method.name] = Choice(method.grid[0])
            continue
        means: dict[tuple[str, ...], float] = {}
        own_metric = metric or ""
        for setting in method.grid:
            own = [r for t, r in zip(trials, runs) if (t.method, t.setting) == (method, setting)]
            done = [run for run in own if run is not None]
            if len(done) == len(own):
                own_metric = metric or done[0].status.metric
                known = [str(name) for name in done[0].metrics if name != "round"]
                require(own_metric in known, "--metric", own_metric, f"one of {', '.join(known)}")
                means[setting] = float(np.mean([run.final(own_metric) for run in done]))
        best = best_by(own_metric, list(means), means.values())
        if best is not None:
            diverged = len(method.grid) - len(means)
            found[method.name] = Choice(best, len(means), diverged, means[best])
    return found


def chosen_and_reported(
    request: Request, *, quiet: bool = False
) -> tuple[dict[str, Choice], dict[str, list[Run]], dict[str, str]]:
    """Choose the setting of each method and run it with the reported seeds.

    Returns, by name, the choices; the runs of the methods that are done with every seed; and why
    the other methods are not. Raises FedprivError like `choose` and `finished`.
    """
    tuning = tuning_trials(request)
    tried = list(finished(request, tuning, quiet=quiet)) if tuning else []
    choices = choose(request.methods, tuning, tried, request.metric)
    reported = reported_trials(request, {name: own.setting for name, own in choices.items()})
    runs: dict[str, list[Run]] = {name: [] for name in choices}
    lost: dict[str, list[str]] = {}
    for trial, run in zip(reported, finished(request, reported, quiet=quiet)):
        if run is None:
            lost.setdefault(trial.method.name, []).append(str(trial.seed))
        else:
            runs[trial.method.name].append(run)
    diverged = {one.name: NO_CHOICE for one in request.methods if one.name not in choices}
    diverged |= {name: f"diverged with seed {', '.join(seeds)}" for name, seeds in lost.items()}
    return choices, {name: own for name, own in runs.items() if name not in lost}, diverged
