"""A bundle: one folder with all that using a trained model takes, and nothing of its users.

README.md           model card, for people and for Hugging Face
bundle.json         task, classes, threshold, columns with scales, privacy, a label for each part
network.json        the network as plain values (`fedpriv.bundles.network`)
model.safetensors   its tensors
certificate.csv     the epsilon rows of the last round
model.onnx          the network for other programs, if it was asked for

A bundle of a stranger is data: opening it runs no code.
"""

from __future__ import annotations

import csv
import hashlib
import io
import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import load

from fedpriv.data.table.encoding import Encoding
from fedpriv.errors import FedprivError
from fedpriv.util.untrusted_files import RECORD_BYTES, read_bytes, read_json

FORMAT = "fedpriv bundle 2"
MANIFEST, NETWORK, WEIGHTS = "bundle.json", "network.json", "model.safetensors"
CERTIFICATE, ONNX, CARD = "certificate.csv", "model.onnx", "README.md"
FOLDER = "bundle"
"""Its name in a run's folder."""
WEIGHT_BYTES = 2**34
"""Size limit of the tensors."""
CLASSES, LOGIT, NUMBER, RAW = "classes", "logit", "number", "raw"
TASKS = (CLASSES, LOGIT, NUMBER, "log_hazard", RAW)
"""What the outputs of a network mean: `Task.meaning`."""


@dataclass(frozen=True)
class Bundle:
    """What a bundle says, and its network.

    name: of the model.
    version: of fedpriv.
    method: that trained it.
    task: what the outputs mean, one of `TASKS`.
    outputs: their number.
    classes: names of the classes, for "classes" and for "logit".
    threshold: of two classes the second is predicted where its probability is above.
    prepared: for records that are no table, what they are before the network reads them.
    licence: by its name on Hugging Face.
    intended_use: what the model is for.
    metrics: name of a metric: its last value.
    valid: whether the released model has a certificate.
    privacy: what to know of its noise: "randomness" and "delta".
    not_covered: what no epsilon covers.
    labels: for each part, whether it is released, charged or a diagnostic of private records.
    unsaved: why there is no network; empty: there is one.
    table: `Encoding.tree` of a table; None: records are arrays.
    network: the network's plain values; None: there is none.
    tensors: the network's tensors by name.
    certificate: rows of epsilon.csv.
    """

    name: str
    version: str
    method: str
    task: str
    outputs: int
    classes: list[str]
    threshold: float
    prepared: str
    licence: str
    intended_use: str
    metrics: dict[str, str]
    valid: bool
    privacy: dict[str, str]
    not_covered: list[str]
    labels: dict[str, str]
    unsaved: str
    table: dict[str, Any] | None = None
    network: dict[str, Any] | None = field(default=None, repr=False)
    tensors: Mapping[str, np.ndarray] = field(default_factory=dict, repr=False)
    certificate: list[dict[str, str]] = field(default_factory=list)

    def __post_init__(self) -> None:
        for name, kind in KINDS.items():
            if not kind(getattr(self, name)):
                raise ValueError(f"{name}={getattr(self, name)!s:.60}: of another kind")
        classes = {CLASSES: self.outputs, LOGIT: 2}.get(self.task, 0)
        single = self.task in (CLASSES, RAW) or self.outputs == 1
        if len(set(self.classes)) != classes or len(self.classes) != classes or not single:
            raise ValueError(f"{self.task}: {len(self.classes)} classes for {self.outputs} outputs")

    @cached_property
    def encoding(self) -> Encoding | None:
        """How rows of a table become features; None: records are arrays."""
        return None if self.table is None else Encoding.parsed(self.table)


def _texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(one, str) for one in value)


def _labelled(value: Any) -> bool:
    return isinstance(value, dict) and _texts([*value, *value.values()])


KINDS: dict[str, Callable[[Any], bool]] = {
    **dict.fromkeys(
        ("name", "version", "method", "prepared", "licence", "intended_use", "unsaved"),
        lambda value: isinstance(value, str),
    ),
    "task": TASKS.__contains__,
    "outputs": lambda value: type(value) is int and value > 0,
    "classes": _texts,
    "threshold": lambda value: isinstance(value, float) and 0 < value < 1,
    "metrics": _labelled,
    "valid": lambda value: type(value) is bool,
    "privacy": lambda value: _labelled(value) and set(value) == {"randomness", "delta"},
    "not_covered": _texts,
    "labels": _labelled,
    "table": lambda value: value is None or isinstance(value, dict),
}
"""What bundle.json has of each."""


def place_of(path: Path) -> Path:
    """The folder of a bundle: this one, or that of a run's folder."""
    return path / FOLDER if is_bundle(path / FOLDER) else path


def is_bundle(folder: Path) -> bool:
    return (folder / MANIFEST).exists()


@contextmanager
def refused_in_one_line(place: Path | str) -> Iterator[None]:
    """Context in which whatever the values of a stranger lead to ends in one line."""
    try:
        yield
    except Exception as error:
        if isinstance(error, OSError) and error.strerror:
            error = FedprivError(f"{error.filename}: {error.strerror}")
        reason = " ".join(str(error).split()) or type(error).__name__
        raise FedprivError(f"{place}: not a readable bundle: {reason:.200}") from error


def read_bundle(place: Path) -> Bundle:
    """The bundle in a folder. Raises FedprivError with one line that names it."""
    with refused_in_one_line(place):
        said = read_json(place / MANIFEST)
        if said.pop("format", None) != FORMAT:
            raise ValueError(f"{MANIFEST}: format: allowed: {FORMAT!r}")
        digests, files = said.pop("digests"), dict[str, bytes]()
        for name, most in (
            (WEIGHTS, WEIGHT_BYTES),
            (NETWORK, RECORD_BYTES),
            (CERTIFICATE, RECORD_BYTES),
        ):
            files[name] = read_bytes(place / name, most)
            if hashlib.sha256(files[name]).hexdigest() != digests[name]:
                raise ValueError(f"{name} is not the file that {MANIFEST} describes")
        tensors = {name: np.array(array) for name, array in load(files[WEIGHTS]).items()}
        rows = list(csv.DictReader(io.StringIO(files[CERTIFICATE].decode(), newline="")))
        bundle = Bundle(
            **said, network=json.loads(files[NETWORK]) or None, tensors=tensors, certificate=rows
        )
        bundle.encoding  # noqa: B018  # whether it can be read
        return bundle
