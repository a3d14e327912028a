"""What trackers show is what the run's tables hold, once a round, also after an interruption."""

import doctest
import math
import sys
import time
from collections import namedtuple
from dataclasses import dataclass, replace
from types import SimpleNamespace

import pandas as pd
import pytest
from fake_runs import read_status
from omegaconf import OmegaConf

from fedpriv.errors import ConfigError, FedprivError
from fedpriv.runs.checkpoint import Origin
from fedpriv.runs.folder import RunFolder
from fedpriv.runs.loop import train
from fedpriv.testing.experiments import SMALL, experiment
from fedpriv.trackers import base
from fedpriv.trackers.base import Log, Tracker, finite
from fedpriv.trackers.mlflow import MlFlow

SHOWN = []


@dataclass(frozen=True)
class Recorder(Tracker):
    """Keeps what it is told. fails_at: the round that it cannot show."""

    fails_at: int = 0

    def open(self, folder, config_yaml, *, known, after):
        SHOWN.append(("open", known, after))
        return Kept(self.fails_at)


class Kept(Log):
    name = "kept"

    def __init__(self, fails_at):
        self.fails_at = fails_at

    def add(self, round, values):
        if round == self.fails_at:
            raise ConnectionError("no network")
        SHOWN.append((round, values))

    def end(self, state):
        SHOWN.append(("end", state))


class Unreachable(Recorder):
    def open(self, folder, config_yaml, *, known, after):
        raise ConnectionError("no such host")


@pytest.fixture(autouse=True)
def nothing_shown():
    SHOWN.clear()


def world(tracker, *words):
    own = {"tracker": tracker} if isinstance(tracker, Tracker) else {}
    named = () if own else (f"tracker={tracker}",)
    return replace(experiment(*SMALL, "rounds=3", *named, *words), **own)


def go(exp, folder, resume=False):
    train(
        exp,
        OmegaConf.to_yaml({"rounds": exp.options.rounds, "seed": 0}),
        folder,
        resume,
        quiet=True,
    )


def tables(folder):
    metrics = pd.read_csv(folder / "metrics.csv").set_index("round")
    return metrics.drop(index=0), pd.read_csv(folder / "epsilon.csv")


def expected(folder):
    """(round, name) -> value: metrics, and the certificate that a run is known by."""
    metrics, epsilon = tables(folder)
    released = epsilon[(epsilon.observer == "released_model") & (epsilon.unit == "user")]
    best = released.groupby("round").certified.min()
    values = {
        (number, name): value for number, row in metrics.iterrows() for name, value in row.items()
    }
    return values | {(number, "epsilon"): value for number, value in best.items()}


def agree(found, folder):
    wanted = {key: value for key, value in expected(folder).items() if value == value}
    assert {round for round, _ in wanted} == {1, 2, 3}
    for key, value in wanted.items():
        assert found[key] == pytest.approx(value, rel=1e-6), key


def test_a_tracker_is_shown_every_row_with_its_certificates(tmp_path):
    exp = world(Recorder())
    go(exp, tmp_path / "run")
    assert SHOWN[0] == ("open", "", 0)
    assert SHOWN[-1] == ("end", "done")
    agree(
        {(number, name): value for number, values in SHOWN[1:-1] for name, value in values.items()},
        tmp_path / "run",
    )
    _, epsilon = tables(tmp_path / "run")
    last = SHOWN[-2][1]
    for row in epsilon[epsilon["round"] == 3].itertuples():
        about = f"{row.observer}/{row.unit}/{row.adjacency}/{row.method}"
        assert last[f"certified/{about}"] == pytest.approx(row.certified)
        assert last.get(f"claimed/{about}", math.nan) == pytest.approx(row.claimed, nan_ok=True)
    assert "round" not in last
    assert read_status(tmp_path / "run")["tracker"] == "kept"


def test_a_resumed_run_finds_its_place_again(tmp_path):
    exp = world(Recorder(), "rounds=2")
    go(exp, tmp_path / "run")
    go(world(Recorder()), tmp_path / "run", resume=True)
    opened = [entry for entry in SHOWN if entry[0] == "open"]
    assert opened == [("open", "", 0), ("open", "kept", 2)]
    assert [entry[0] for entry in SHOWN if isinstance(entry[0], int)] == [1, 2, 3]


def test_the_run_says_how_it_ended(tmp_path, monkeypatch):
    def interrupted(self, folder):
        raise KeyboardInterrupt

    monkeypatch.setattr(RunFolder, "save_model", interrupted)
    with pytest.raises(KeyboardInterrupt):
        go(world(Recorder()), tmp_path / "run")
    assert SHOWN[-1] == ("end", "interrupted")


def test_a_tracker_that_fails_ends_no_run(tmp_path):
    go(world(Recorder(fails_at=2)), tmp_path / "run")
    assert read_status(tmp_path / "run")["state"] == "done"
    assert [entry[0] for entry in SHOWN] == ["open", 1]
    log = (tmp_path / "run" / "run.log").read_text()
    assert log.count("the tracker failed (ConnectionError: no network)") == 1


def test_one_that_cannot_be_reached_at_the_start_is_said_before_a_round(tmp_path):
    with pytest.raises(FedprivError, match="cannot reach Unreachable"):
        go(world(Unreachable()), tmp_path / "run")
    assert (tmp_path / "run" / "rounds_begun.csv").read_text().count("\n") == 1


@pytest.mark.parametrize("name", ["tensorboard", "wandb", "mlflow"])
def test_what_is_not_installed_is_named_with_its_extra(name, monkeypatch):
    monkeypatch.setattr("fedpriv.settings.experiment.find_spec", lambda package: None)
    with pytest.raises(ConfigError, match=rf"tracker={name}: .*pip install .*\[{name}\]"):
        world(name)


def test_a_tracker_changes_neither_results_nor_what_a_checkpoint_is_tied_to(tmp_path):
    go(world("none"), tmp_path / "one")
    go(world(Recorder()), tmp_path / "other")
    assert (tmp_path / "one/metrics.csv").read_bytes() == (
        tmp_path / "other/metrics.csv"
    ).read_bytes()
    assert not Origin.of("tracker: {a: 1}\nseed: 0").differences(
        Origin.of("tracker: {a: 2}\nseed: 0")
    )


def test_infinite_certificates_are_no_curve():
    assert finite({"epsilon": float("inf"), "accuracy": 0.5}) == {"accuracy": 0.5}


def test_tensorboard(tmp_path):
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    go(world("tensorboard", "rounds=2"), tmp_path / "run")
    go(world("tensorboard"), tmp_path / "run", resume=True)
    events = accumulator.EventAccumulator(str(tmp_path / "run" / "tensorboard"))
    events.Reload()
    found = {}
    for name in events.Tags()["scalars"]:
        for event in events.Scalars(name):
            assert (event.step, name) not in found
            found[event.step, name] = event.value
    agree(found, tmp_path / "run")
    [text] = events.Tensors("configuration/text_summary")
    assert b"rounds: 2" in text.tensor_proto.string_val[0]


class MlFlowClient:
    """Stands in for MLflow's, which knows one experiment."""

    def __init__(self, tracking_uri):
        SHOWN.append(tracking_uri)

    def get_experiment_by_name(self, name):
        return SimpleNamespace(experiment_id="7") if name == "known" else None

    def create_experiment(self, name):
        return f"new {name}"

    def create_run(self, experiment, run_name):
        SHOWN.append((experiment, run_name))
        return SimpleNamespace(info=SimpleNamespace(run_id="3"))

    def log_param(self, run, key, value):
        SHOWN.append((run, key, value))

    def log_batch(self, run, metrics):
        SHOWN.append((run, *metrics))

    def set_terminated(self, run, state):
        SHOWN.append((run, state))


@pytest.mark.parametrize(("name", "experiment"), [("known", "7"), ("other", "new other")])
def test_what_mlflow_is_told(name, experiment, tmp_path, monkeypatch):
    metric = namedtuple("Metric", "key value timestamp step")
    monkeypatch.setitem(sys.modules, "mlflow", SimpleNamespace(MlflowClient=MlFlowClient))
    monkeypatch.setitem(sys.modules, "mlflow.entities", SimpleNamespace(Metric=metric))
    log = MlFlow(name, "here").open(tmp_path / "run", "seed: 0", known="", after=0)
    log.add(2, {"certified/add&remove": 0.5, "epsilon": math.inf})
    log.end("interrupted")
    [told] = [one for entry in SHOWN for one in entry if isinstance(one, metric)]
    assert told == ("certified/add_remove", 0.5, told.timestamp, 2)
    assert told.timestamp / 1000 == pytest.approx(time.time(), abs=60)
    run = [(experiment, "run"), ("3", "seed", 0), ("3", told), ("3", "KILLED")]
    assert ["here", *run] == SHOWN


def test_mlflow(tmp_path):
    mlflow = pytest.importorskip("mlflow")
    uri = f"sqlite:///{tmp_path / 'mlflow.db'}"
    go(world("mlflow", f"tracker.uri={uri}", "rounds=2"), tmp_path / "run")
    go(world("mlflow", f"tracker.uri={uri}"), tmp_path / "run", resume=True)
    client = mlflow.MlflowClient(tracking_uri=uri)
    run = client.get_run(read_status(tmp_path / "run")["tracker"])
    assert (run.info.status, run.info.run_name) == ("FINISHED", "run")
    assert run.data.params["seed"] == "0"
    histories = {
        name: client.get_metric_history(run.info.run_id, name) for name in run.data.metrics
    }
    found = {
        (entry.step, name): entry.value for name, entries in histories.items() for entry in entries
    }
    agree(found, tmp_path / "run")


def test_the_example_of_a_tracker_runs():
    assert doctest.testmod(base) == (0, 3)


@pytest.mark.parametrize("mode", [None, "online", "offline"])
def test_weights_and_biases(mode, tmp_path, monkeypatch):
    """wandb reads WANDB_MODE where it is given no mode."""
    shown, asked, ended = {}, [], []
    summary = {}

    def init(**arguments):
        asked.append(arguments["mode"])
        return SimpleNamespace(
            id="known",
            summary=summary,
            define_metric=lambda *names, **options: None,
            log=lambda row: shown.update({(row["round"], name): row[name] for name in row}),
            finish=lambda exit_code: ended.append(exit_code),
        )

    monkeypatch.setitem(sys.modules, "wandb", SimpleNamespace(init=init))
    monkeypatch.setattr("fedpriv.settings.experiment.find_spec", lambda package: True)
    go(world("wandb", *([f"tracker.mode={mode}"] if mode else [])), tmp_path / "run")
    agree(shown, tmp_path / "run")
    assert (asked, ended, summary) == ([mode], [0], {"state": "done"})
    assert read_status(tmp_path / "run")["tracker"] == "known"
