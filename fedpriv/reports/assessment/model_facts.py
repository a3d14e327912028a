"""What a run's folder says about its model: the columns that it uses, and how good it is."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from fedpriv.bundles.bundle import FOLDER, MANIFEST, refused_in_one_line
from fedpriv.data.table.describe import special_categories
from fedpriv.data.table.schema import Number, parse_schema
from fedpriv.reports.assessment import folder_files as files
from fedpriv.reports.assessment.folder_files import Facts, finite, text
from fedpriv.runs.labels import RELEASED
from fedpriv.runs.progress import hardly_better
from fedpriv.runs.status import Status
from fedpriv.runs.tables import UTILITY
from fedpriv.runtime.utility import ALL, MODEL, REFERENCES
from fedpriv.util.untrusted_files import read_json

SCHEMA_PLACE = f"{FOLDER}/{MANIFEST}"
"""The file of a run that has the columns of its table."""
VALUES = (MODEL, *REFERENCES)


def column_facts(folder: Path) -> Facts:
    """`classes`: their number, `predicts`: the label of a table, and `features`: each column with
    its kind and the special category that it looks like. Raises FedprivError for a file that cannot
    be read."""
    path = folder / SCHEMA_PLACE
    with refused_in_one_line(path):
        said = read_json(path) if path.exists() else {"classes": [], "table": None}
        schema = parse_schema(said["table"]["schema"]) if said["table"] is not None else None
        special = special_categories(schema) if schema else {}
        features = [
            {
                "name": text(one.name),
                "kind": "number" if isinstance(one, Number) else "category",
                "special": special.get(one.name, ""),
            }
            for one in (schema.features if schema else ())
        ]
        predicts = text(schema.label.column) if schema else ""
        return {"classes": len(said["classes"]), "predicts": predicts, "features": features}


def utility_facts(folder: Path, status: Status, *, public: bool) -> list[Facts]:
    """Each metric on all test records after the last round: of the model, of a trivial one and of
    one that was trained without privacy, as far as the run says so.

    public: leave out what is computed from private records without noise.
    """
    shown = [name for name in VALUES if not public or status.label_of(UTILITY, name) == RELEASED]
    found: list[Facts] = []
    for row in files.read_rows(folder / UTILITY):
        if row.get("part") == ALL and MODEL in shown:
            values = {name: finite(row.get(name)) if name in shown else None for name in VALUES}
            found.append({"metric": text(row.get("metric")), **values})
    return found


CHANCE = {"auc": 0.5, "c_index": 0.5, "r2": 0.0}
"""What a model without information reaches."""


def at_chance(runs: Sequence[Facts]) -> list[str]:
    """A line for each run whose model is hardly better than a trivial one."""
    found = []
    for run in runs:
        name = run["metric"]
        value = run["metrics"].get(name, {}).get("value")
        chance = CHANCE | ({"balanced_accuracy": 1 / run["classes"]} if run["classes"] else {})
        known = {row["metric"]: row["trivial"] for row in run["utility"]}
        least = chance.get(name) if known.get(name) is None else known[name]
        if isinstance(value, float) and least is not None and hardly_better(value, least):
            which = f"run {run['folder']}: " if len(runs) > 1 else ""
            metric = name.replace("_", " ")
            found.append(
                f"{which}This model is hardly better than one without information: {metric} "
                f"{value:.3g}, and {least:.3g} without information."
            )
    return found
