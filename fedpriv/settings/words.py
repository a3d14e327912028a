"""The words of a command line: where the configuration tree is, ranges of seeds (`seed=0..4`), and
what somebody may have meant by words that fedpriv cannot read. Imports little."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from fedpriv.errors import ConfigError, FedprivError, require
from fedpriv.util.pasted import hydra_text

SEEDS = re.compile(r"(\d+)\.\.(\d+)")
MOST_SEEDS = 10_000
"""A longer range is a mistake."""
ALLOWED = f"seeds such as 0,1,2 or 0..4 (first to last, at most {MOST_SEEDS:,})"
DATA_FILES = (
    *(".csv", ".tsv", ".txt", ".parquet", ".pq", ".json", ".jsonl", ".xlsx", ".npz", ".npy"),
    *(".gz", ".bz2", ".xz", ".zip"),
)
HYDRA_SIGNS = re.compile(r"[\w/\\+.$%*@?|:{}\[\] ,-]*(?<!^,)", re.ASCII)
"""What Hydra reads as a value without quotes."""
QUOTED = (
    "'",
    '"',
    "{",
    "['",
    '["',
    "[[",
    "choice(",
    "range(",
    "interval(",
    "shuffle(",
    "sort(",
    "glob(",
)
SYNONYMS = {
    "epsilon": "accountant.target",
    "eps": "accountant.target",
    "target_epsilon": "accountant.target",
    "target": "accountant.target",
    "budget": "accountant.budget",
    "delta": "accountant.delta",
    "learning_rate": "algo.local_lr",
    "epochs": "algo.local_epochs",
    "noise": "algo.noise_multiplier",
    "sigma": "algo.noise_multiplier",
    "users": "allocator.n_users",
    "silos": "allocator.n_silos",
    "clients": "allocator.n_silos",
    "gpu": "device",
    "cuda": "device",
    "n_rounds": "rounds",
    "num_rounds": "rounds",
    "iterations": "rounds",
    "steps": "rounds",
    "seeds": "seed",
    "dataset": "data",
    "method": "algo",
    "algorithm": "algo",
    "attack": "fedpriv audit",
    "out": "hydra.run.dir",
    "output": "hydra.run.dir",
    "output_dir": "hydra.run.dir",
}
"""Names that other programs have for a setting."""
TABLE_KEYS = ("path", "label", "user", "silo", "schema", "missing", "drop", "time", "test")
"""Keys of data=table for which somebody may have left data=table out."""
OWN_DATA = "a name, not a path; your own file: data=table data.path="


def conf_dir() -> Path:
    """The configuration tree: inside an installed wheel, or at the top of a checkout."""
    here = Path(__file__).resolve().parents[1]
    return here / "conf" if (here / "conf").is_dir() else here.parent / "conf"


def near(word: str, known: Iterable[str]) -> str:
    """A hint that names the nearest known word; empty if none is near."""
    by_plain = {name.lower().replace("-", "_"): name for name in known}
    found = difflib.get_close_matches(word.lower().replace("-", "_"), list(by_plain), n=1)
    return f"did you mean {by_plain[found[0]]}? " if found else ""


def with_listed_seeds(words: Iterable[str]) -> list[str]:
    """The words of a command line, with every range of `seed` as a list, and names of a table in
    quotes where Hydra cannot read them without. Raises ConfigError for a range that is empty or too
    long."""
    return [_quoted(_listed(word)) for word in words]


def _quoted(word: str) -> str:
    """A word of `data` with signs that Hydra reads in quotes alone: data.decimal=, for example."""
    key, equals, value = word.partition("=")
    odd = HYDRA_SIGNS.fullmatch(value) is None and value.startswith(QUOTED) is False
    if not (key.startswith("data.") and equals and odd):
        return word
    if value.startswith("["):
        inside = value.removeprefix("[").removesuffix("]")
        return f"{key}=[{','.join(hydra_text(one.strip()) for one in inside.split(','))}]"
    return f"{key}={hydra_text(value)}"


def _listed(word: str) -> str:
    key, equals, value = word.partition("=")
    if key != "seed" or (".." not in value and not re.fullmatch(r"\d+-\d+", value)):
        return word
    return f"{key}{equals}{','.join(map(str, seeds('seed', value)))}"


def seeds(name: str, text: str) -> list[int]:
    """Seeds from text such as "0..4" or "0,2,5..7".

    name: of the setting, for errors.

    Raises ConfigError for other text, and for a seed that is named twice.
    """
    found: list[int] = []
    for part in text.split(","):
        bounds = SEEDS.fullmatch(part.strip())
        number = part.strip()
        require(bounds is not None or number.isdecimal(), name, text, ALLOWED)
        first, last = map(int, bounds.groups() if bounds else (number, number))
        require(0 <= last - first < MOST_SEEDS, name, text, ALLOWED)
        found += range(first, last + 1)
    require(len(set(found)) == len(found), name, text, "each seed once")
    return found


def is_setting(name: str) -> bool:
    """Whether a word is the name of a setting: a top-level key, or a key of a group."""
    import yaml

    tree = yaml.safe_load((conf_dir() / "config.yaml").read_text())
    groups = {path.name for path in conf_dir().iterdir() if path.is_dir()}
    first, dot, _ = name.partition(".")
    return first in groups if dot else name in groups | tree.keys() - {"defaults"}


def groups_of(name: str) -> list[str]:
    """The config groups that have a file of this name, whatever its case and dashes."""
    plain = _plain(name)
    files = sorted(conf_dir().glob("*/*.yaml"))
    return [f"{file.parent.name}={file.stem}" for file in files if _plain(file.stem) == plain]


def _plain(name: str) -> str:
    return name.lower().replace("-", "_")


def refuse_lone_word(word: str, following: str | None) -> None:
    """Raise FedprivError for a word without "=" that is recognised; return for any other.

    following: the next word of the command line, if there is one.
    """
    name, _, value = word.partition(":")
    if is_setting(name):
        meant = f"{name}={value or _value(following)}"
        raise FedprivError(f"{word}: settings have an equals sign; write {meant}")
    if named := groups_of(word):
        raise FedprivError(f"{word}: did you mean {' or '.join(named)}?")
    path = Path(word)
    if path.suffix.lower() in DATA_FILES:
        raise FedprivError(f"{word}: {OWN_DATA}{word}")
    if path.is_dir() and (path / "config.yaml").is_file():
        raise FedprivError(
            f"{word}: a run's folder; resume={word} continues it, and fedpriv table {word} shows it"
        )


def _value(following: str | None) -> str:
    """The next word, where it may be a value."""
    no_value = following is None or following.startswith("-") or "=" in following
    return "VALUE" if no_value else str(following)


def refuse_lone_words(words: Sequence[str]) -> None:
    """`refuse_lone_word` for all words of a command line."""
    for word, following in zip(words, [*words[1:], None]):
        if "=" not in word and not word.startswith(("~", "-")):
            refuse_lone_word(word, following)


def refuse_flags(args: Sequence[str]) -> None:
    """Raise FedprivError for a flag that is a setting, such as --rounds=5 or --rounds 5."""
    for word, following in zip(args, [*args[1:], None]):
        name, _, value = word.lstrip("-").replace("-", "_").partition("=")
        if word.startswith("--") and name != "hydra" and is_setting(name):
            meant = f"{name}={value or _value(following)}"
            raise FedprivError(f"{word}: settings have no dashes; write {meant}")


def refuse_file(group: str, value: str) -> None:
    """Raise ConfigError for the path of a file in place of the name of a configuration file."""
    suffix = Path(value).suffix.lower()
    is_path = value.startswith(("/", "./", "../", "~")) or suffix in (*DATA_FILES, ".py", ".yaml")
    if not is_path:
        return
    if group == "data":
        raise ConfigError(group, value, f"{OWN_DATA}{value}")
    file = f"{group}/name.yaml"
    raise ConfigError(
        group, value, f"a name, not a path; --config-dir folder finds your own folder/{file}"
    )


@contextmanager
def writing(out: Path) -> Iterator[None]:
    """Raises ConfigError for `--out` if the file cannot be written."""
    try:
        yield
    except OSError as error:
        raise ConfigError("--out", out, f"a file that can be written ({error.strerror})") from error
