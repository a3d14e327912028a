"""A run's state after a round, tied to the run that it belongs to.

What a resumed run is charged for the past follows from its configuration, so a checkpoint goes on
under the configuration that it was made with and no other. Its checksum covers arrays and labels:
it finds damage and edits by mistake. It is no signature; whoever owns the folder can write whatever
they like.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

import fedpriv
from fedpriv.errors import FedprivError

FREE = (
    "rounds",
    "device",
    "trainer",
    "workers",
    "resume",
    "engine",
    "tracker",
    "evaluate_every",
    "checkpoint_every",
    "evaluate_training",
    "optimum",
    "quiet",
    "hydra",
)
"""Top-level keys that say neither what is released in a round nor what it costs; a resumed run may
change them."""

LABELS = "fedpriv"
"""The entry of a file's metadata that holds everything but the arrays, as JSON."""


@dataclass(frozen=True)
class Origin:
    """What a checkpoint was made with: a digest of every top-level key of the configuration but the
    `FREE` ones, and the version of each package that decides about bits."""

    config: Mapping[str, str]
    versions: Mapping[str, str]

    @staticmethod
    def of(config_yaml: str) -> Origin:
        """That of this program with a resolved configuration."""
        from omegaconf import OmegaConf

        tree: Any = OmegaConf.to_container(OmegaConf.create(config_yaml))
        return Origin.of_values(tree)

    @staticmethod
    def of_values(tree: Mapping[str, Any]) -> Origin:
        """The same of the configuration's plain values."""
        config = {key: _digest(value) for key, value in tree.items() if key not in FREE}
        versions = {
            "fedpriv": fedpriv.__version__,
            "torch": _installed("torch"),
            "numpy": np.__version__,
        }
        return Origin(config, versions)

    def differences(self, other: Origin) -> list[str]:
        """Top-level keys whose values are not the same in both."""
        keys = sorted(self.config.keys() | other.config.keys())
        return [key for key in keys if self.config.get(key) != other.config.get(key)]

    def changes(self, now: Origin) -> list[str]:
        """A line for each package whose version is another one `now`: bits may differ from here
        on.
        """
        then = self.versions
        return [
            f"goes on with {name} {v} after {then[name]}"
            for name, v in now.versions.items()
            if v != then[name]
        ]


@dataclass(frozen=True)
class Checkpoint:
    """arrays: the state after `round`, bit for bit.
    begun: how many rounds had been begun by then, repeated ones counted each time.
    tables: by file name how many bytes a table had by then, and their SHA-256.
    """

    round: int
    arrays: Mapping[str, np.ndarray]
    begun: int
    origin: Origin
    tables: Mapping[str, tuple[int, str]] = field(default_factory=dict)

    def packed(self) -> bytes:
        """A safetensors file whose metadata hold everything but the arrays, and a checksum."""
        from safetensors.numpy import save

        labels = {
            "round": self.round,
            "begun": self.begun,
            "config": dict(self.origin.config),
            "versions": dict(self.origin.versions),
            "tables": {name: list(mark) for name, mark in self.tables.items()},
        }
        # One entry, since the order of several is not fixed, and equal checkpoints are equal files.
        labels["checksum"] = _checksum(labels, self.arrays)
        return save(dict(self.arrays), metadata={LABELS: _canonical(labels)})

    @staticmethod
    def read(path: Path) -> Checkpoint:
        """The checkpoint in a file. Raises FedprivError, naming the file, when it is damaged or has
        no checksum."""
        from safetensors import SafetensorError, safe_open

        try:
            with safe_open(path, framework="numpy") as file:
                labels = json.loads((file.metadata() or {}).get(LABELS, "{}"))
                arrays = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
        except (SafetensorError, ValueError) as error:
            raise FedprivError(f"{path} is damaged ({error})") from error
        checksum = labels.pop("checksum", None)
        if checksum is None:
            raise FedprivError(
                f"{path} was written by an earlier version of fedpriv, which kept no checksum"
            )
        if checksum != _checksum(labels, arrays):
            raise FedprivError(f"{path} is damaged (its checksum differs)")
        tables = {name: (size, digest) for name, (size, digest) in labels.get("tables", {}).items()}
        origin = Origin(labels["config"], labels["versions"])
        return Checkpoint(labels["round"], arrays, labels["begun"], origin, tables)

    def check(self, path: Path, origin: Origin) -> None:
        """Raise FedprivError unless a run of `origin` may go on from here: for another
        configuration, and for a fedpriv of another major or minor version.

        path: the file, for the error.
        """
        if other := self.origin.differences(origin):
            raise FedprivError(
                f"{path} was made with another configuration: config.yaml differs in "
                f"{', '.join(other)}"
            )
        then = self.origin.versions["fedpriv"]
        now = origin.versions["fedpriv"]
        if _minor(then) != _minor(now):
            raise FedprivError(f"{path} was made with fedpriv {then}; this is {now}")


def _minor(text: str) -> list[str]:
    """Major and minor number of a version."""
    return text.split(".")[:2]


def _canonical(value: Any) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"))


_installed = cache(version)  # reads a package's metadata


def _digest(value: Any) -> str:
    return hashlib.sha256(_canonical(value).encode()).hexdigest()


def _checksum(labels: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> str:
    digest = hashlib.sha256(_canonical(dict(labels)).encode())
    for name in sorted(arrays):
        array = np.ascontiguousarray(arrays[name])
        digest.update(_canonical([name, array.dtype.str, list(arrays[name].shape)]).encode())
        digest.update(array.tobytes())
    return digest.hexdigest()
