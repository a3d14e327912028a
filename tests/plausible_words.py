"""Random command lines as a user might type them: most are meant to work, some have one mistake
planted."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache

from omegaconf import OmegaConf

from fedpriv.settings.compose import CommandLine, compose_jobs, without_hydra
from fedpriv.settings.words import conf_dir

SMALL = ("rounds=2", "preset.n_users=6", "preset.local_epochs=1", "preset.silo_epochs=1")
SMALL += ("quiet=true",)
DATA = {
    "breast_cancer": 3,
    "digits": 3,
    "artificial": 3,
    "creditcard": 3,
    "mnist": 2,
    "breast_cancer_silos": 2,
    "heart_disease": 4,
    "tcga_brca": 6,
}
"""Data sets, and a number of silos that they can be dealt to."""
CHOICES = {
    "model": ("linear", "mlp", "bounded_linear"),
    "optimizer": ("sgd", "sgd", "adam", "rmsprop"),
    "accountant": ("rdp", "rdp_pld", "pld"),
    "aggregation": ("plain", "plain", "masked", "secagg", "secagg_exact_noise", "shuffle"),
    "mechanism": ("gaussian", "discrete_gaussian", "laplace", "binomial", "none"),
    "allocator": ("zipf", "uniform", "equal", "dirichlet", "natural", "by_user"),
}
COMMANDS = ("run",) * 12 + ("epsilon",) * 5 + ("data",)

VALUES: dict[str, tuple[str, ...]] = {
    "seed": ("0", "7", "2147483648"),
    "rounds": ("1", "3"),
    "randomness": ("simulation", "system"),
    "evaluate_every": ("1", "2", "5"),
    "evaluate_training": ("true", "false"),
    "checkpoint_every": ("1", "2"),
    "trainer": ("auto", "batched", "plain"),
    "workers": ("1", "2"),
    "device": ("auto", "cpu"),
    "preset.clip": ("0.5", "2"),
    "preset.local_lr": ("0.01", "0.3"),
    "preset.global_lr": ("1", "0.5"),
    "accountant.delta": ("1e-6", "0.001"),
    "accountant.budget": ("null", "0.5", "1000"),
    "optimizer.momentum": ("0", "0.5"),
    "optimizer.weight_decay": ("0", "0.01"),
    "optimizer.beta1": ("0.5",),
    "optimizer.eps": ("1e-6",),
    "allocator.n_users": ("5", "9"),
    "allocator.n_silos": ("2", "4"),
    "allocator.alpha_user": ("0.1", "1.5"),
    "allocator.alpha": ("0.3", "10"),
    "allocator.local_test": ("0", "0.2"),
    "allocator.invent_users": ("true",),
    "allocator.labels_per_user": ("null", "2"),
    "algo.clip": ("0.5", "3"),
    "algo.noise_multiplier": ("0", "1", "20"),
    "algo.user_rate": ("0.5", "1"),
    "algo.weighting": ("uniform", "records"),
    "algo.local_epochs": ("1", "2"),
    "algo.local_steps": ("1", "3"),
    "algo.batch_size": ("4", "16"),
    "algo.local_lr": ("0.01", "0.2"),
    "algo.global_lr": ("0.5", "1"),
    "algo.calibration": ("certified", "given", "paper"),
    "algo.epsilon": ("1", "30"),
    "algo.delta": ("1e-6", "1e-3"),
    "algo.cohort": ("null", "2", "3"),
    "algo.records_per_user": ("null", "2", "10"),
    "algo.observer": ("server", "'released model'", "silo"),
    "algo.feature_norm": ("null", "1"),
    "algo.participation": ("balanced", "uniform"),
    "algo.sampling": ("without_replacement", "poisson"),
    "algo.prox": ("none", "l1", "ball"),
    "algo.prox_size": ("0.1",),
    "algo.released": ("last", "uniform"),
    "algo.proximal": ("0.1",),
    "algo.rule": ("adam", "momentum", "yogi"),
    "algo.group_size": ("'2'", "'4'", "max", "median", "all"),
    "algo.init_weights": ("own", "shared"),
    "algo.keep_optimizer": ("true", "false"),
    "algo.variant": ("alternate",),
    "algo.phase": ("1", "2"),
    "algo.inner_steps": ("2",),
    "aggregation.threshold": ("null", "2", "3"),
    "aggregation.cohort": ("null", "3"),
    "aggregation.bits": ("64", "32", "auto"),
    "mechanism.noise_multiplier": ("1", "4"),
    "mechanism.clip": ("0.7",),
    "mechanism.levels": ("64", "1024"),
    "tracker": ("none",),
    "engine": ("inprocess",),
}
"""Legal values of keys; whether they fit together is for the program to say."""

WRONG = ("abc", "nan", "-inf", "-3", "1e-300", "9223372036854775808", "[", "[1,2]", "{a:1}", "{}{}")
WRONG += ("''", "'", "${nothing}", "1,2", "a=b", " ", "*")


@dataclass(frozen=True)
class Line:
    """A command line.

    command: run, epsilon or data.
    words: key=value, which override those of `SMALL`.
    wrong: the key in which a mistake is planted; None: it is meant to work.
    """

    command: str
    words: tuple[str, ...]
    wrong: str | None = None

    @property
    def keys(self) -> list[str]:
        """The keys that were typed."""
        return [word.partition("=")[0].lstrip("+~") for word in self.words]


@cache
def _keys(words: tuple[str, ...]) -> frozenset[str]:
    """The keys of the configuration that words compose."""
    [config] = compose_jobs(CommandLine.parse(list(words)), conf_dir())
    plain = OmegaConf.to_container(without_hydra(config), resolve=False)
    assert isinstance(plain, dict)
    groups = [(group, node) for group, node in plain.items() if isinstance(node, dict)]
    return frozenset({*plain, *(f"{group}.{key}" for group, node in groups for key in node)})


def lines(seed: int, number: int) -> Iterator[Line]:
    """Command lines, the same for a seed; in one of five a mistake is planted."""
    choice = random.Random(seed)
    for _ in range(number):
        line = _meant_to_work(choice)
        yield _with_mistake(line, choice) if choice.random() < 0.2 else line


def _meant_to_work(choice: random.Random) -> Line:
    algo = choice.choice(sorted(path.stem for path in (conf_dir() / "algo").glob("*.yaml")))
    data = choice.choice([*DATA])
    groups = [f"algo={algo}", f"data={data}", f"preset.n_silos={DATA[data]}"]
    for group, names in CHOICES.items():
        if choice.random() < 0.08:
            groups.append(f"{group}={choice.choice(names)}")
    known = _keys(tuple(groups))
    keys = choice.sample([key for key in VALUES if key in known], choice.randint(0, 2))
    words = (*groups, *(f"{key}={choice.choice(VALUES[key])}" for key in keys))
    return Line(choice.choice(COMMANDS), words)


def _with_mistake(line: Line, choice: random.Random) -> Line:
    typed = set(line.keys)
    key = choice.choice([key for key in VALUES if key not in typed])
    kind = choice.randrange(3)
    if kind == 0:  # a key that does not exist, or not for these components
        at = choice.randrange(key.find(".") + 1, len(key))
        word = f"{key[:at]}{key[at]}{key[at:]}=1"
    elif kind == 1:
        group = choice.choice(list(CHOICES))
        typed_words = tuple(word for word in line.words if not word.startswith(f"{group}="))
        line, word = replace(line, words=typed_words), f"{group}=no_such_{group}"
    else:
        numeric = [key for key in VALUES if key.partition(".")[2] in NUMBERS and key not in typed]
        word = f"{choice.choice(numeric)}={choice.choice(WRONG)}"
    return Line(line.command, (*line.words, word), wrong=word.partition("=")[0])


NUMBERS = ("clip", "noise_multiplier", "user_rate", "local_epochs", "local_lr", "global_lr")
NUMBERS += ("delta", "n_users", "n_silos", "weight_decay", "momentum")
