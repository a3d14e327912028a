"""A run's state after a round, tied to the run's configuration.

The past cost of a resumed run follows from its configuration, so a checkpoint is only valid with
the configuration that wrote it. Its checksum covers arrays and labels, and detects damage and
accidental edits. It is not a signature: the owner of the folder can write any content.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from omegaconf import OmegaConf
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

import fedpriv
from fedpriv.errors import FedprivError
from fedpriv.util.untrusted_files import require_regular

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
    "ledger",
    "population",
    "hydra",
)
"""Top-level keys that affect neither what a round releases nor its cost. A resumed run may change
them, but for the rounds of a run that may stop early: it costs all that it has planned."""

MAX_BYTES = 2**38
"""Size limit of a checkpoint. Only the arrays that the file describes are read into memory."""

LABELS = "fedpriv"
"""The entry of a file's metadata that holds everything except the arrays, as JSON."""


@dataclass(frozen=True)
class Origin:
    """What determines the bits of a checkpoint.

    config: top-level key, without the free ones: digest of its value.
    versions: package: its version.
    """

    config: Mapping[str, str]
    versions: Mapping[str, str]

    @staticmethod
    def of(config_yaml: str) -> Origin:
        """The origin of this program with a resolved configuration."""
        tree: Any = OmegaConf.to_container(OmegaConf.create(config_yaml))
        return Origin.of_values(tree)

    @staticmethod
    def of_values(tree: Mapping[str, Any]) -> Origin:
        """Like `of`, from the configuration's plain values."""
        stop = tree.get("stop")
        early = isinstance(stop, Mapping) and stop.get("target") is not None
        free = [key for key in FREE if key != "rounds" or not early]
        config = {key: _digest(value) for key, value in tree.items() if key not in free}
        versions = {"fedpriv": fedpriv.__version__, "torch": _installed("torch")}
        return Origin(config, versions | {"numpy": np.__version__})

    def differences(self, other: Origin) -> list[str]:
        """Top-level keys whose values differ."""
        keys = sorted(self.config.keys() | other.config.keys())
        return [key for key in keys if self.config.get(key) != other.config.get(key)]

    def changes(self, now: Origin) -> list[str]:
        """A line for each package whose version has changed `now`, so that later bits may
        differ."""
        then = self.versions
        return [
            f"resumes with {name} {version} after {then[name]}"
            for name, version in now.versions.items()
            if version != then[name]
        ]


@dataclass(frozen=True)
class Checkpoint:
    """The state of a run after a round.

    round: the last completed round.
    arrays: the state, bit for bit.
    attempts: number of attempts at rounds by then.
    origin: configuration and versions of the run.
    tables: file name of a table: its bytes by then, and their SHA-256.
    identity: digests of what the run computes with (`fedpriv.runtime.identity.RunIdentity`).
    """

    round: int
    arrays: Mapping[str, np.ndarray]
    attempts: int
    origin: Origin
    tables: Mapping[str, tuple[int, str]]
    identity: Mapping[str, str]

    def packed(self) -> bytes:
        """A safetensors file, with the labels and a checksum in its metadata."""
        labels = {
            "round": self.round,
            "attempts": self.attempts,
            "config": dict(self.origin.config),
            "versions": dict(self.origin.versions),
            "tables": {name: list(mark) for name, mark in self.tables.items()},
            "identity": dict(self.identity),
        }
        # One entry: the order of several is not fixed, and equal checkpoints must be equal files.
        labels["checksum"] = _checksum(labels, self.arrays)
        return save(dict(self.arrays), metadata={LABELS: _canonical(labels)})

    @staticmethod
    def read(path: Path) -> Checkpoint:
        """The checkpoint in a file. Raises FedprivError, naming the file, when it is damaged."""
        try:
            require_regular(path, MAX_BYTES)
            with safe_open(path, framework="numpy") as file:
                labels = json.loads((file.metadata() or {}).get(LABELS, "{}"))
                arrays = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
        except (SafetensorError, ValueError, TypeError, RecursionError) as error:
            raise FedprivError(f"{path} is damaged ({error})") from error
        checksum = labels.pop("checksum", None) if isinstance(labels, dict) else None
        if checksum is None or checksum != _checksum(labels, arrays):
            raise FedprivError(f"{path} is damaged (wrong checksum)")
        try:
            return Checkpoint._labelled(labels, arrays)
        except (LookupError, TypeError, ValueError, AttributeError) as error:
            raise FedprivError(f"{path} was written by another version of fedpriv") from error

    @staticmethod
    def _labelled(labels: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> Checkpoint:
        """A checkpoint from its labels. Raises an error of a kind that `read` knows for labels that
        no run writes: their checksum may be right."""
        tables = {str(name): (size, digest) for name, (size, digest) in labels["tables"].items()}
        origin = Origin(dict(labels["config"]), dict(labels["versions"]))
        counts = (labels["round"], labels["attempts"], *(size for size, _ in tables.values()))
        texts = (*origin.config.values(), *origin.versions.values())
        texts += (*(digest for _, digest in tables.values()), origin.versions["fedpriv"])
        if any(type(count) is not int or count < 0 for count in counts):
            raise ValueError("a count is no count")
        if not all(isinstance(text, str) for text in texts):
            raise ValueError("a text is no text")
        identity = {str(name): str(digest) for name, digest in labels["identity"].items()}
        return Checkpoint(labels["round"], arrays, labels["attempts"], origin, tables, identity)

    def check(self, path: Path, origin: Origin) -> None:
        """Raise FedprivError unless a run of `origin` may resume from here. Another configuration
        is refused, and so is another major or minor version of fedpriv.

        path: the file, for the error.
        """
        if other := self.origin.differences(origin):
            raise FedprivError(
                f"{path} was written with another configuration: config.yaml differs in "
                f"{', '.join(other)}"
            )
        then = self.origin.versions["fedpriv"]
        now = origin.versions["fedpriv"]
        if then.split(".")[:2] != now.split(".")[:2]:
            raise FedprivError(f"{path} was written with fedpriv {then}; this is fedpriv {now}")


def _canonical(value: Any) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"))


_installed = cache(version)  # reading a package's metadata is slow


def _digest(value: Any) -> str:
    return hashlib.sha256(_canonical(value).encode()).hexdigest()


def _checksum(labels: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> str:
    digest = hashlib.sha256(_canonical(dict(labels)).encode())
    for name in sorted(arrays):
        array = np.ascontiguousarray(arrays[name])
        digest.update(_canonical([name, array.dtype.str, list(arrays[name].shape)]).encode())
        digest.update(array.tobytes())
    return digest.hexdigest()
