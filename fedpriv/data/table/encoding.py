"""How rows become features, as a value: training makes it, a bundle stores it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from fedpriv.data.table.encode import features_of
from fedpriv.data.table.read import Cells, read_cells
from fedpriv.data.table.schema import Number, Schema, parse_schema, schema_tree
from fedpriv.data.table.settings import ReadingRules
from fedpriv.data.table.written import LARGEST, POINT
from fedpriv.data.tables import require_columns
from fedpriv.errors import require

OF_OWNERS = ("names of silos", "number of users")
"""What is read off records and does not matter to new rows."""


@dataclass(frozen=True)
class Encoding:
    """How rows become features, after training has fixed it.

    schema: the table's columns.
    rules: which cells are refused, filled or accepted, and how they are written.
    scales: for each column of numbers without a public range the mean and the deviation of the
        training records.
    """

    schema: Schema
    rules: ReadingRules
    scales: Mapping[str, tuple[float, float]]

    @staticmethod
    def fitted(schema: Schema, rules: ReadingRules, training: np.ndarray) -> Encoding:
        """training: features of the training records, as `Encoded.x`."""
        scales = {}
        for name, place in _unscaled(schema):
            values = training[:, place].astype(np.float64)
            known = values[~np.isnan(values)]
            mean = float(known.mean()) if len(known) else 0.0
            deviation = float(known.std()) if len(known) else 0.0
            scales[name] = mean, 1.0 if deviation <= 1e-12 * abs(mean) else deviation
        return Encoding(schema, rules, scales)

    def tree(self) -> dict[str, Any]:
        """It as plain values, without users and silos."""
        read_off = tuple(one for one in self.schema.read_off if one not in OF_OWNERS)
        alone = replace(
            self.schema,
            n_users=1,
            user=None,
            silo=None,
            silos=(),
            unused=(),
            read_off=read_off,
        )
        scales = {name: list(scale) for name, scale in self.scales.items()}
        return {"schema": schema_tree(alone), "rules": asdict(self.rules), "scales": scales}

    @staticmethod
    def parsed(tree: Any) -> Encoding:
        """The encoding of `tree`, which a stranger may have written. Raises ValueError, TypeError,
        LookupError or FedprivError."""
        schema = parse_schema(tree["schema"])
        given, rules = tree["rules"], ReadingRules(decimal=POINT)
        for name, value in asdict(rules).items():
            own = given[name]
            fits = isinstance(own, str | None if name == "separator" else type(value))
            fits = fits and all(isinstance(one, str) for one in own or ())
            require(fits, f"rules.{name}", own, f"as {value!r}")
        names = [name for name, _ in _unscaled(schema)]
        require(set(tree["scales"]) == set(names), "scales", "", f"those of {', '.join(names)}")
        scales = {
            name: (float(mean), float(deviation))
            for name, (mean, deviation) in tree["scales"].items()
        }
        for name, (mean, deviation) in scales.items():
            fits = abs(mean) <= LARGEST and 0 < deviation <= LARGEST
            require(fits, f"scales.{name}", [mean, deviation], "a mean and a positive deviation")
        return Encoding(schema, replace(rules, **given), scales)

    def scaled(self, x: np.ndarray) -> np.ndarray:
        """Features (n, d) as the network reads them; a missing number becomes 0. Changes `x`."""
        for name, place in _unscaled(self.schema):
            mean, deviation = self.scales[name]
            values = (x[:, place].astype(np.float64) - mean) / deviation
            x[:, place] = np.where(np.isnan(values), 0.0, values)
        return x

    def features(self, path: Path | None) -> tuple[np.ndarray, Cells, list[str]]:
        """Features (n, d) of the rows of a file, or of the given data frame, without label, user
        and silo; its cells, whose `refused` names the rows that cannot be read; and notes. Raises
        DataError for a table that cannot be read at all."""
        features = self.schema.features
        names = [one.name for one in features]
        cells = read_cells(path, self.rules, columns=names)
        found = list(map(str, cells.frame.columns))
        require_columns(cells.name, found, names)
        notes: list[str] = []
        x, kept = features_of(cells, self.schema, self.rules, notes)
        assert cells.refused is not None
        for row in np.flatnonzero(~kept):
            cells.refused.setdefault(int(row), "a missing value")
        return self.scaled(x), cells, notes


def _unscaled(schema: Schema) -> Iterator[tuple[str, int]]:
    """Columns of numbers without a public range, with the place of their feature."""
    place = 0
    for feature in schema.features:
        if isinstance(feature, Number) and feature.range is None:
            yield feature.name, place
        place += feature.width
