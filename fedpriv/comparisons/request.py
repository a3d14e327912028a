"""What `fedpriv compare` was asked for: methods, epsilon, seeds and a grid for tuning."""

from __future__ import annotations

import itertools
import math
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from hashlib import sha256
from pathlib import Path

from fedpriv.errors import ConfigError, FedprivError, require
from fedpriv.settings.compose import require_folder, split_words
from fedpriv.settings.words import refuse_lone_words, seeds, with_listed_seeds
from fedpriv.util.parsers import Parser
from fedpriv.util.plain_numbers import plain_number

SEEDS = "0..4"
TUNING_SEEDS = 3
"""Seeds for tuning, unless others are named: those after the last reported one."""
LONGEST_NAME = 120
OWN = {
    "accountant.target": "epsilon= says it",
    "accountant.budget": "epsilon= is the limit",
    "resume": "the same command with --folder goes on",
    "data": "one data set",
}
"""Keys that a comparison sets itself or cannot vary, and why."""
SAME_RECORDS = "methods are compared on the same records"


@dataclass(frozen=True)
class Method:
    """One of the compared settings.

    name: on the command line, in folders and in tables.
    words: its own overrides.
    grid: overrides of each setting that tuning tries; one empty setting without tuning.
    """

    name: str
    words: tuple[str, ...]
    grid: tuple[tuple[str, ...], ...] = ((),)


@dataclass(frozen=True)
class Request:
    """A comparison.

    methods: at least two.
    words: overrides that all methods share.
    epsilon: certified for every run; inf: the methods' own words make their noise.
    seeds: of the reported runs, at least two.
    tuning_seeds: of the runs that choose settings; empty without tuning.
    folder: of all runs and results.
    metric: that is compared and chooses settings; None: the data set's main metric.
    against: name of the method that all others are tested against; None: all pairs are tested.
    mixed: whether methods may protect different units, or be observed differently.
    at_once: number of active runs.
    config_dir: the user's own configuration folder.
    """

    methods: tuple[Method, ...]
    words: tuple[str, ...]
    epsilon: float
    seeds: tuple[int, ...]
    tuning_seeds: tuple[int, ...]
    folder: Path
    metric: str | None = None
    against: str | None = None
    mixed: bool = False
    at_once: int = 256
    config_dir: str | None = None

    @staticmethod
    def parse(args: Sequence[str]) -> Request:
        """Raises FedprivError with one line for words that are no comparison."""
        given = _parser().parse_intermixed_args(args)
        require_folder(given.config_dir)
        refuse_lone_words(given.words)
        fixed, swept = split_words(with_listed_seeds(given.words))
        values = _values(fixed, swept)
        epsilon = _epsilon(values.pop("epsilon", []))
        chosen = _chosen_seeds(values.pop("seed", None))
        for key in values.keys() & OWN.keys():
            alone = key == "data" and len(values[key]) == 1
            require(alone, key, ",".join(values[key]), OWN[key])
        for key in (key for key in values if key.startswith("data.")):
            require(len(values[key]) == 1, key, ",".join(values[key]), "one value: " + SAME_RECORDS)
        if own := next((key for key in values if key.startswith("hydra")), None):
            raise ConfigError(own, ",".join(values[own]), "not here; --folder names the folder")
        several = {key: each for key, each in values.items() if len(each) > 1}
        methods = _with_grids(_methods(several, values.get("algo", [])), given.tune)
        tuned = any(len(method.grid) > 1 for method in methods)
        names = [method.name for method in methods]
        known = given.against in (None, *names)
        require(known, "--against", given.against, f"one of {'; '.join(names)}")
        reserved = {*several, "epsilon", "seed"}
        return Request(
            methods,
            tuple(word for word in fixed if word.partition("=")[0] not in reserved),
            epsilon,
            chosen,
            _tuning_seeds(given.tuning_seeds, chosen, tuned=tuned),
            given.folder or Path("outputs/comparisons") / f"{datetime.now():%Y-%m-%d_%H-%M-%S-%f}",
            given.metric,
            given.against,
            given.mixed,
            given.at_once,
            given.config_dir,
        )

    def go_on(self, args: Sequence[str]) -> str:
        """The command that continues it, from its own words."""
        named = any(word.partition("=")[0] == "--folder" for word in args)
        own = [] if named else ["--folder", str(self.folder)]
        return shlex.join(["fedpriv", "compare", *args, *own])


def _parser() -> Parser:
    parser = Parser(
        "fedpriv compare",
        description=(
            "Train methods at one certified epsilon and compare them: the noise of each is solved\n"
            "for it. The folder gets a table (CSV, Markdown, LaTeX), a picture and all numbers.\n\n"
            "  fedpriv compare algo=uldp_avg,uldp_sgd epsilon=2 seed=0..4 rounds=50\n"
            "  fedpriv compare algo=uldp_avg,uldp_sgd epsilon=2 --tune algo.global_lr=1,10,30"
        ),
    )
    parser.add_argument(
        "words",
        nargs="*",
        metavar="key=value",
        help="settings; every key with several values makes methods",
    )
    parser.add_argument(
        "--tune",
        action="append",
        default=[],
        metavar="[METHOD:]KEY=VALUES",
        help="choose the best of these values for every method, or for one",
    )
    parser.add_argument(
        "--tuning-seeds",
        metavar="SEEDS",
        help="other seeds than the reported ones (default: the three after them)",
    )
    parser.add_argument("--folder", type=Path, help="of all runs; the same folder again goes on")
    parser.add_argument("--metric", help="a column of metrics.csv (default: the main metric)")
    parser.add_argument("--against", metavar="METHOD", help="test all others against this one")
    parser.add_argument(
        "--mixed", action="store_true", help="allow methods that protect different units"
    )
    parser.add_argument("--at-once", type=int, default=256, help="active runs (default: 256)")
    parser.add_argument("--config-dir", help="your own configuration files")
    return parser


def _values(fixed: Sequence[str], swept: Mapping[str, list[str]]) -> dict[str, list[str]]:
    """The values of each key, one or several. Raises ConfigError for a key that is given twice."""
    found = dict(swept)
    for key, _, value in (word.partition("=") for word in fixed):
        require(key not in found, key, value, "each key once")
        found[key] = [value]
    return found


def _epsilon(given: Sequence[str]) -> float:
    allowed = "one positive number, for example epsilon=2"
    text = ",".join(given)
    require(len(given) == 1, "epsilon", text, allowed)
    try:
        epsilon = plain_number(text)
    except ValueError as error:
        raise ConfigError("epsilon", text, allowed) from error
    require(0 < epsilon < math.inf, "epsilon", text, allowed)
    return epsilon


def _chosen_seeds(given: Sequence[str] | None) -> tuple[int, ...]:
    text = ",".join(given) if given else SEEDS
    found = tuple(seeds("seed", text))
    require(len(found) > 1, "seed", text, f"at least two seeds, for example seed={SEEDS}")
    return found


def _tuning_seeds(given: str | None, reported: Sequence[int], *, tuned: bool) -> tuple[int, ...]:
    """Other seeds than the reported ones: a choice by the reported seeds would favour the methods
    with larger grids."""
    if not tuned:
        require(given is None, "--tuning-seeds", given, "has no effect without --tune")
        return ()
    if given is None:
        first = max(reported) + 1
        return tuple(range(first, first + TUNING_SEEDS))
    found = tuple(seeds("--tuning-seeds", given))
    shared = sorted(set(found) & set(reported))
    allowed = f"other seeds than those reported (seed={','.join(map(str, shared))})"
    require(not shared, "--tuning-seeds", given, allowed)
    return found


def _methods(several: Mapping[str, list[str]], algo: Sequence[str]) -> list[Method]:
    """A method for each combination of the keys with several values."""
    if not several:
        given = f"algo={algo[0]}" if algo else "algo"
        raise FedprivError(
            f"{given}: at least two methods, for example algo=uldp_avg,uldp_sgd, or several values "
            "of another key: algo.local_lr=0.05,0.1"
        )
    keys = sorted(several, key=lambda key: key != "algo")
    found = []
    for values in itertools.product(*(several[key] for key in keys)):
        words = tuple(f"{key}={value}" for key, value in zip(keys, values))
        named = (word.removeprefix("algo=") for word in words)
        found.append(Method(",".join(named), words))
    return found


def _with_grids(methods: Sequence[Method], tune: Sequence[str]) -> tuple[Method, ...]:
    """The methods with the settings that `--tune` names for them. Raises FedprivError for a grid of
    a method that is not compared."""
    grids: dict[str, dict[str, list[str]]] = {method.name: {} for method in methods}
    for word in tune:
        left = word.partition("=")[0]
        whose, colon, _ = left.rpartition(":")
        names = [one.name for one in methods if not colon or whose in _names(one)]
        allowed = f"a method of this comparison before the colon: {'; '.join(grids)}"
        require(bool(names), "--tune", word, allowed)
        [(key, values)] = _values(*split_words([word.removeprefix(f"{whose}:")])).items()
        settable = key not in {"seed", "epsilon", *OWN}
        require(settable, "--tune", word, "a key of a method, for example algo.local_lr=0.01,0.1")
        require(not key.startswith("data."), "--tune", word, SAME_RECORDS)
        for name in names:
            once = key not in grids[name]
            require(once, "--tune", word, f"each key once for {name}")
            grids[name][key] = values
    made = []
    for method in methods:
        own_grid = grids[method.name]
        set_already = {one.partition("=")[0] for one in method.words} & own_grid.keys()
        for key in set_already:
            raise ConfigError("--tune", key, f"another key: {method.name} has its own {key}")
        settings = itertools.product(*([f"{k}={v}" for v in each] for k, each in own_grid.items()))
        made.append(Method(method.name, method.words, tuple(settings)))
    return tuple(made)


def _names(method: Method) -> set[str]:
    """What may stand for a method: its name, and that of its algorithm."""
    return {method.name, *(w.removeprefix("algo=") for w in method.words if w.startswith("algo="))}


def file_name(text: str) -> str:
    """Text as the name of a folder. Different texts have different names."""
    plain = re.sub(r"[^\w.,=+-]", "-", text)[:LONGEST_NAME]
    return plain if plain == text else f"{plain}-{sha256(text.encode()).hexdigest()[:6]}"
