"""The private evaluation of a run's model, as a run of its own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf

from fedpriv.algorithms.evaluation import Evaluation, classes_of
from fedpriv.data.test_records import MOST_USERS
from fedpriv.errors import ConfigError, FedprivError, require
from fedpriv.runs.folder import CONFIG
from fedpriv.runs.noise_choice import laplace_is_less
from fedpriv.runs.stored_config import read_config
from fedpriv.settings.compose import CommandLine, one_job
from fedpriv.settings.experiment import Experiment, build, build_resolved, resolved
from fedpriv.util.pasted import hydra_text
from fedpriv.util.untrusted_files import file_digest

NUMBERS = {"target": "accountant.target", "bins": "algo.bins", "most_loss": "algo.most_loss"}
MOST_BYTES = 2**30
FIXED = {
    "algo": "evaluation",
    "allocator": "by_user",
    "allocator.n_users": str(MOST_USERS),
    "allocator.n_silos": "1",
    "allocator.local_test": "0",
    "rounds": "1",
}
WEIGHTS = "model.safetensors"
TEST_PERSON = "test person"
"""The unit of evaluations beside a training, whose unit may be the user as well."""
FOLLOWS = ("data", "seed", "model", "allocator", "engine", "experiment", "profile", "preset")
"""Keys and groups of keys that follow from the run. By another seed persons who have trained the
model would be its test persons."""


@dataclass(frozen=True)
class RunEvaluation:
    """An evaluation that a command line asks for.

    experiment: its checked settings.
    config: the same as plain values.
    folder: of its results.
    """

    experiment: Experiment
    config: dict[str, Any]
    folder: Path

    @staticmethod
    def parse(args: list[str]) -> RunEvaluation:
        """Raises FedprivError for words that do not fit together, and for runs without a model."""
        if not args or "=" in args[0]:
            raise FedprivError("fedpriv evaluate: expected a run's folder, such as outputs/visits")
        run = Path(args[0]).expanduser()
        given = dict(map(_setting, args[1:]))
        limited = {"accountant.target", "algo.noise_multiplier"} & given.keys()
        require(bool(limited), "target", "", "the epsilon that the evaluation may cost, such as 1")
        require((run / CONFIG).is_file(), "run", run, "the folder of a run")
        stored = read_config(run)
        found = RunEvaluation.of(run, stored, given)
        if laplace_is_less(found.experiment, given):
            return RunEvaluation.of(run, stored, {**given, "mechanism": "laplace"})
        return found

    @staticmethod
    def of(run: Path | None, stored: Mapping[str, Any], given: Mapping[str, str]) -> RunEvaluation:
        """The evaluation of a run.

        run: its folder, whose configuration names no code of others; None: it begins here.
        stored: its resolved configuration.
        given: settings of the evaluation.

        Raises FedprivError for settings that do not fit together, and for a run without a model.
        """
        words = {**_defaults(stored), **FIXED, **given}
        line = CommandLine.parse([f"{key}={value}" for key, value in words.items()])
        job = one_job(line, "fedpriv evaluate")
        tree = resolved(job)
        here = {name: tree[name] for name in ("engine", "tracker", "resume")}
        plain = {**stored, **here, "ledger": None, "population": None}
        trained = build(plain, trust_code=run is None)
        tree |= {"data": stored["data"], "model": stored["model"]}
        tree["algo"] |= _model_of(run, trained)
        experiment = build_resolved(tree, line.overrides)
        return RunEvaluation(experiment, tree, Path(str(job.hydra.run.dir)).absolute())

    @property
    def yaml(self) -> str:
        """The settings as a folder stores them."""
        return OmegaConf.to_yaml(OmegaConf.create(self.config))


def planned_evaluation(exp: Experiment, stored: Mapping[str, Any]) -> RunEvaluation:
    """The evaluations beside a training that `stop.target` asks for, one a round. Raises
    ConfigError for settings that do not fit together.

    stored: the training's resolved configuration.
    """
    options, stop, accountant = exp.options, exp.options.stop, exp.accountant
    allowed = "null: early stopping costs all planned rounds; accountant.target bounds them"
    require(accountant.budget is None, "accountant.budget", accountant.budget, allowed)
    allowed = "none, since stop.target evaluates privately"
    require(options.evaluation == "none", "evaluation", options.evaluation, allowed)
    paid = options.ledger is not None
    allowed = "the population of the test records, if and only if ledger=FILE pays"
    require(paid == (stop.population is not None), "stop.population", stop.population, allowed)
    models = str(options.rounds // stop.every)
    given = {
        "accountant.target": str(stop.target),
        "accountant.delta": str(accountant.delta),
        "algo.models": models,
        "rounds": models,
        "randomness": options.randomness,
        "device": options.device,
    }
    if options.private is not None:
        given["private"] = options.private
    if paid:
        given["ledger"] = hydra_text(str(options.ledger))
        given["population"] = hydra_text(str(stop.population))
    found = RunEvaluation.of(None, stored, given)
    evaluation, metric = found.experiment.algo, score_of(exp)
    assert isinstance(evaluation, Evaluation)
    require(metric in evaluation.scores, "stop.metric", metric, ", ".join(evaluation.scores))
    return found


def score_of(exp: Experiment) -> str:
    """The score that `stop` compares."""
    return exp.options.stop.metric or exp.data.task.metric


def _defaults(stored: Mapping[str, Any]) -> dict[str, str]:
    """Settings that a command line may change."""
    return {
        "hydra.run.dir": f"outputs/evaluations/{datetime.now():%Y-%m-%d_%H-%M-%S-%f}",
        "randomness": "system",
        "evaluation": "none",
        "seed": str(stored["seed"]),  # of the split into training and test records
    }


def _model_of(run: Path | None, trained: Experiment) -> dict[str, Any]:
    """The settings that name a run's model, if it has a folder. Raises FedprivError unless it has
    released one, or will."""
    classes = {"classes": classes_of(trained.data)}
    first = trained.algo.queries(1, trained.planner.draft(trained.federation), charged=False)
    one = trained.algo.releases_model and any(query.size for query in first)
    key, value = ("algo", type(trained.algo).__name__) if run is None else ("run", str(run))
    require(one, key, value, "a run that releases one model, not one of each silo, or statistics")
    if run is None:
        return classes
    file = (run / WEIGHTS).absolute()
    try:
        return {"weights": str(file), "digest": file_digest(file, MOST_BYTES), **classes}
    except (OSError, ValueError) as error:
        raise ConfigError("run", run, f"a finished run, with {WEIGHTS}") from error


def _setting(word: str) -> tuple[str, str]:
    key, equals, value = word.partition("=")
    if not equals:
        raise FedprivError(f"{word}: expected key=value; see fedpriv evaluate --help")
    chosen = key in FIXED or key.partition(".")[0] in FOLLOWS
    require(not chosen, key, value, "left out: it follows from the run")
    return NUMBERS.get(key, key), value
