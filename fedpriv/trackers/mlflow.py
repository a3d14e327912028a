"""MLflow: a server, or a file on this machine (`tracker.uri=sqlite:///mlflow.db`)."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar

from fedpriv.trackers.base import Log, Tracker, finite, settings

STATES = {"done": "FINISHED", "failed": "FAILED", "interrupted": "KILLED"}


@dataclass(frozen=True)
class MlFlow(Tracker):
    """A run of an MLflow experiment.

    experiment: its name.
    uri: the tracking store; None: MLFLOW_TRACKING_URI, or MLflow's default.
    """

    package: ClassVar[str] = "mlflow"
    addresses: ClassVar[tuple[str, ...]] = ("uri",)

    experiment: str
    uri: str | None = None

    def open(self, folder: Path, config_yaml: str, *, known: str, after: int) -> Log:
        client = import_module("mlflow").MlflowClient(tracking_uri=self.uri)
        if known:
            client.update_run(known, status="RUNNING")
            return _MlFlowLog(client, known)
        found = client.get_experiment_by_name(self.experiment)
        own = found.experiment_id if found else client.create_experiment(self.experiment)
        run = client.create_run(own, run_name=folder.name)
        for key, value in settings(config_yaml).items():
            client.log_param(run.info.run_id, key, value)
        return _MlFlowLog(client, run.info.run_id)


class _MlFlowLog(Log):
    def __init__(self, client: Any, run: str) -> None:
        self._client = client
        self.name = run

    def add(self, round: int, values: Mapping[str, float]) -> None:
        metric = import_module("mlflow.entities").Metric
        now = int(time.time() * 1000)
        metrics = [
            metric(_allowed(name), value, now, round) for name, value in finite(values).items()
        ]
        self._client.log_batch(self.name, metrics=metrics)

    def end(self, state: str) -> None:
        self._client.set_terminated(self.name, STATES[state])


def _allowed(name: str) -> str:
    """MLflow allows letters, digits and a few signs."""
    return "".join(sign if sign.isalnum() or sign in "_-. :/" else "_" for sign in name)
