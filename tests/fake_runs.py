"""Folders of finished runs without training."""

from __future__ import annotations

import json

import yaml

from fedpriv.runs.folder import RunFolder

DIGESTS = ("holder", "source", "records", "allocation", "effective", "code")


def read_status(folder):
    """status.json as it is written; empty without the file."""
    path = folder / "status.json"
    return json.loads(path.read_text()) if path.exists() else {}


def finished_status(label, **facts):
    """The entries of a finished run's status.json that every reader asks for, and `facts`."""
    return {
        "state": "done",
        "rounds": 1,
        "label": label,
        "metric": "accuracy",
        "delta": 1e-5,
        "observer": "released model",
        "randomness": "simulation",
        "dp_valid": None,
        "not_covered": [],
        "labels": {},
        "records": 100,
        "identity": {name: name[0] * 64 for name in DIGESTS},
        **facts,
    }


def fake_run(path, label, values, epsilon, *, state="done", seed=0, data="Digits", **algo):
    """A run with rounds 0, 1, ... and accuracies `values`; `epsilon` (certified, claimed) of the
    released model for users a round. algo: keys of its algorithm."""
    folder = RunFolder(path)
    config = {
        "rounds": len(values) - 1,
        "seed": seed,
        "device": f"cuda:{seed}",  # changes no result
        "preset": {"clip": seed},
        "algo": {"_target_": f"fedpriv.algorithms.{label}", **algo},
        "mechanism": {"_target_": "fedpriv.mechanisms.Gaussian", **algo},
        "data": {"_target_": f"fedpriv.data.{data}", "root": None},
    }
    folder.begin(yaml.safe_dump(config)).close()
    folder.tables.append(
        "metrics.csv", [{"round": r, "loss": 1 - v, "accuracy": v} for r, v in enumerate(values)]
    )
    names = {"observer": "released model", "adjacency": "add/remove"}
    rows = []
    for r in range(1, len(values)):
        for unit, method, factor in (
            ("record", "pld", 0.1),
            ("user", "rdp", 1.1),
            ("user", "pld", 1.0),
        ):
            certified = epsilon[0] * r * factor
            claimed = None if epsilon[1] is None else epsilon[1] * r
            rows.append(
                {
                    "round": r,
                    **names,
                    "unit": unit,
                    "method": method,
                    "certified": certified,
                    "claimed": claimed,
                }
            )
    folder.tables.append("epsilon.csv", rows)
    folder.status(**finished_status(label, state=state))
