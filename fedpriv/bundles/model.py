"""The model in a bundle, with the methods of scikit-learn's estimators."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fedpriv.bundles.bundle import (
    NUMBER,
    ONNX,
    Bundle,
    place_of,
    read_bundle,
    refused_in_one_line,
)
from fedpriv.data.table.read import given_frame
from fedpriv.errors import DataError, FedprivError
from fedpriv.models.scores import predicted, probabilities
from fedpriv.util.untrusted_files import TABLE_BYTES, opened

if TYPE_CHECKING:
    import pandas as pd

BATCH = 1024
"""Rows that the network reads together, as in the evaluation of a run."""
SHOWN = 3
"""Refused rows that an error names."""


@dataclass(frozen=True, eq=False)
class Rows:
    """Records as the network reads them.

    x: (n, ...).
    lines: (n,) their lines in the file, or their places in the array.
    refused: why a row cannot be read, by its place.
    notes: what else to know, a line each.
    """

    x: np.ndarray
    lines: np.ndarray
    refused: dict[int, str]
    notes: list[str]

    @property
    def read(self) -> np.ndarray:
        """Which rows can be used, (n,) bool."""
        return np.array([row not in self.refused for row in range(len(self.x))], dtype=bool)


@dataclass(frozen=True, eq=False)
class Model:
    """A trained model.

    bundle: what its bundle says.
    network: from records (n, ...) to outputs (n, c), float32.
    """

    bundle: Bundle
    network: Callable[[np.ndarray], np.ndarray]

    def outputs(self, records: Any) -> np.ndarray:
        """The network's own outputs (n, c), float32.

        records: a data frame with the columns of the bundle, or an array (n, ...).

        Raises DataError for rows that cannot be read.
        """
        outputs, rows = self._outputs(records)
        if rows.refused:
            shown = [f"row {row}: {why}" for row, why in rows.refused.items()][:SHOWN]
            raise DataError(
                f"{len(rows.refused)} of {len(rows.x)} rows cannot be read: {'; '.join(shown)}"
            )
        return outputs

    def predict(self, records: Any) -> np.ndarray:
        """The class of each record, its number in the label's unit, or the logarithm of its hazard,
        (n,). Arguments and errors as of `outputs`."""
        return self._predicted(self.outputs(records))

    def predict_proba(self, records: Any) -> np.ndarray:
        """The probability of each class (n, c), as in `classes_`. Arguments and errors as of
        `outputs`."""
        if not self.bundle.classes:
            raise FedprivError("a model without classes has no probabilities")
        return probabilities(self.outputs(records))

    @property
    def classes_(self) -> np.ndarray:
        """Names of the classes, in the order of the probabilities."""
        return np.array(self.bundle.classes, dtype=object)

    def reading(self, rules: dict[str, str]) -> Model:
        """The same model, for tables that are written otherwise: rules by their names in
        `ReadingRules`."""
        table = self.bundle.table
        if table is None or not rules:
            return self
        own = {**table, "rules": {**table["rules"], **rules}}
        return replace(self, bundle=replace(self.bundle, table=own))

    def scores(self, path: Path) -> tuple[pd.DataFrame, Rows]:
        """A line for each row of a file: where it stands, its prediction, its probabilities, and
        why it cannot be read; and the rows. Raises DataError."""
        import pandas as pd

        outputs, rows = self._outputs(path)
        read = rows.read
        frame = pd.DataFrame({"line": rows.lines})
        frame.loc[read, "prediction"] = self._predicted(outputs[read])
        if self.bundle.classes:
            for name, column in zip(self.bundle.classes, probabilities(outputs[read]).T):
                frame.loc[read, f"probability of {name}"] = column
        frame["problem"] = [rows.refused.get(row, "") for row in range(len(rows.x))]
        return frame, rows

    def _outputs(self, records: Any) -> tuple[np.ndarray, Rows]:
        """Outputs (n, c), and their rows. A row without finite outputs is refused as well."""
        rows = self._read(records)
        read = np.flatnonzero(rows.read)
        if not len(read):
            reason = next(iter(rows.refused.values()), "there is none")
            raise DataError(f"no row can be read: {reason}")
        found = self._run(rows.x[read])
        outputs = np.full((len(rows.x), *found.shape[1:]), np.nan, dtype=found.dtype)
        outputs[read] = found
        for row in read[~np.isfinite(found).all(1)]:
            rows.refused[int(row)] = "the model has no finite output for it"
        return outputs, rows

    def _read(self, records: Any) -> Rows:
        encoding = self.bundle.encoding
        if encoding is None:
            return self._array(records)
        import pandas as pd

        if isinstance(records, Path):
            x, cells, notes = encoding.features(records)
        else:
            names = [one.name for one in encoding.schema.features]
            if not isinstance(records, pd.DataFrame):
                array = np.asarray(records)
                if array.ndim != 2 or array.shape[1] != len(names):
                    raise DataError(
                        f"an array of shape {array.shape}; expected (n, {len(names)}), the columns "
                        f"{', '.join(names):.200}"
                    )
                records = pd.DataFrame(array, columns=names)
            with given_frame(records):
                x, cells, notes = encoding.features(None)
        if cells.unread:
            notes.append(f"columns that the model does not read: {', '.join(cells.unread):.200}")
        return Rows(x, np.asarray(cells.frame.index), cells.refused or {}, notes)

    def _array(self, records: Any) -> Rows:
        assert self.bundle.network is not None  # of a model
        dtype, shape = self.bundle.network["dtype"], tuple(self.bundle.network["shape"])
        name = "the array"
        if isinstance(records, Path):
            name = str(records)
            try:
                with opened(records, TABLE_BYTES) as file:
                    records = np.load(file, allow_pickle=False)
            except (OSError, ValueError, EOFError) as error:
                raise DataError(f"{name}: not a readable .npy file of numbers: {error}") from error
        x = np.asarray(records)
        fits = x.shape[1:] == shape and x.ndim == len(shape) + 1 and len(x) > 0
        if not fits or not np.can_cast(x.dtype, dtype, "same_kind"):
            raise DataError(
                f"{name}: {x.dtype} of shape {x.shape}; expected {dtype} of shape "
                f"(n, {', '.join(map(str, shape))}): {self.bundle.prepared}"
            )
        x = x.astype(dtype)
        odd = ~np.isfinite(x.reshape(len(x), -1)).all(1)
        refused = dict.fromkeys(np.flatnonzero(odd).tolist(), "a number that is not finite")
        return Rows(x, np.arange(len(x)), refused, [])

    def _run(self, x: np.ndarray) -> np.ndarray:
        with refused_in_one_line("the network"):
            parts = [self.network(x[start : start + BATCH]) for start in range(0, len(x), BATCH)]
            found = np.concatenate(parts)
            if found.shape != (len(x), self.bundle.outputs):
                raise ValueError(f"outputs of shape {found.shape} for {self.bundle.outputs} each")
            return found

    def _predicted(self, outputs: np.ndarray) -> np.ndarray:
        bundle = self.bundle
        if bundle.classes:
            return np.asarray(self.classes_[predicted(outputs, bundle.threshold)])
        first = outputs[:, 0].astype(np.float64)
        encoding = bundle.encoding
        if bundle.task == NUMBER and encoding is not None:
            origin, unit = encoding.schema.label.origin_and_unit
            return np.asarray(origin + first * unit)
        return first


def load_model(path: Path | str, *, onnx: bool | None = None) -> Model:
    """The model of a bundle, or of a run's folder.

    onnx: run its model.onnx under onnxruntime; None: where torch is not installed.

    Raises FedprivError with one line.
    """
    place = place_of(Path(path))
    bundle = read_bundle(place)
    if bundle.network is None:
        raise FedprivError(f"{place}: it has no network to predict with: {bundle.unsaved}")
    if onnx or (onnx is None and find_spec("torch") is None):
        from fedpriv.bundles.onnx_file import open_network, require_packages

        require_packages("onnx", "onnxruntime")
        if not (place / ONNX).exists():
            raise FedprivError(f"{place}: it has no {ONNX}; fedpriv export --onnx writes it")
        with refused_in_one_line(place):
            return Model(bundle, open_network(place / ONNX))
    from fedpriv.bundles.network import load_network, run_network

    with refused_in_one_line(place):
        network = load_network(bundle.network, bundle.tensors)
    return Model(bundle, lambda x: run_network(network, x))
