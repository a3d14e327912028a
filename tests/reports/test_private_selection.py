"""Choosing a run by numbers of training records is no private choice: the attack, and what the
table says of it."""

import json
import shutil
from dataclasses import asdict, dataclass, replace

import numpy as np
import pytest
import yaml
from runs import experiment

import fedpriv
from fedpriv.data.allocate import INVENTED, ByUser
from fedpriv.data.base import Corpus, DataSet, Records
from fedpriv.errors import ConfigError
from fedpriv.models.tasks import Classification
from fedpriv.runs.labels import metric_label
from fedpriv.runs.loop import train
from fedpriv.sweeps.random_number import DRAW, RandomNumber, SweepDraw, configured

PEOPLE, VICTIM = 8, 3


@dataclass(frozen=True)
class People(DataSet):
    """Eight people, one of them far away from the others; `present`: whether that one takes part.

    strangers: whether the test records are of other people.
    """

    present: bool = True
    strangers: bool = True

    shape = (2,)
    outputs = 2
    natural_users = True

    @property
    def task(self):
        return Classification()

    @property
    def disjoint_test(self):
        return self.strangers

    @property
    def read_without_noise(self):
        return ()

    def load(self, streams):
        rng = np.random.default_rng(0)
        user = np.repeat(np.arange(PEOPLE), 6)
        x = rng.normal(size=(len(user), 2)).astype(np.float32)
        y = (x[:, 0] > 0).astype(np.int64)
        x[user == VICTIM] *= 1000
        stays = (user != VICTIM) | self.present
        return Corpus(Records(x[stays], y[stays], user=user[stays]), Records(x[:30] / 9, y[:30]))


SETTINGS = (
    ("algo.local_lr=1.0", "algo.local_epochs=1"),
    ("algo.local_lr=0.3", "algo.local_epochs=9"),
)


def sweep(folder, metric, **people):
    """A finished sweep of two runs with the two settings, whose best is chosen by `metric`."""
    exps = [
        replace(
            experiment(
                "algo=uldp_avg", "model=linear", "rounds=1", f"seed={seed}", "algo.batch_size=9",
                "evaluate_training=true", *words,
            ),
            data=People(**people),
            allocator=ByUser(PEOPLE, 2, local_test=0.0),
        )
        for seed, words in enumerate(SETTINGS)
    ]  # fmt: skip
    configs = [
        yaml.safe_dump({"seed": number, "rounds": 1, "settings": list(words)})
        for number, words in enumerate(SETTINGS)
    ]
    for number, (exp, config) in enumerate(zip(exps, configs)):
        train(exp, config, folder / str(number), quiet=True)
    sweeper = RandomNumber(10.0, 1.0)
    asked = {**asdict(sweeper), "metric": metric, "seed": 0, "settings": SETTINGS}
    draw = SweepDraw(
        asked, [0, 1], [1, 1], [configured(config) for config in configs], sweeper.cost(exps)
    )
    (folder / DRAW).write_text(json.dumps(asdict(draw)))
    return folder


@pytest.fixture(scope="module")
def swept(tmp_path_factory):
    return sweep(tmp_path_factory.mktemp("sweep"), "accuracy")


def selection(folder, metric=None):
    [found] = fedpriv.load(folder).report(metric=metric).selections
    return found


def test_one_user_decides_who_wins_by_a_diagnostic(swept, tmp_path):
    """The attack: whoever sees which setting has won by contribution_norm knows whether the victim
    takes part, whatever the noise. So the choice is not covered."""
    without = sweep(tmp_path / "without", "accuracy", present=False)
    here, there = (selection(folder, "contribution_norm") for folder in (swept, without))
    assert (here.best.folder.name, there.best.folder.name) == ("1", "0")
    for found in (here, there):
        assert found.cost == "not covered (contribution_norm is a diagnostic of training records)"
        assert "selection not covered (contribution_norm is" in found.note


@pytest.mark.parametrize(
    "metric", ["train_loss", "gradient_norm", "clipped", "update_norm", "contributions"]
)
def test_no_diagnostic_chooses(swept, metric):
    assert (
        f"not covered ({metric} is a diagnostic of training records)"
        in selection(swept, metric).note
    )


def test_a_metric_of_the_released_model_on_strangers_chooses(swept):
    assert selection(swept).cost.startswith("covered: epsilon")
    assert selection(swept, "accuracy").cost.startswith("covered: epsilon")


def test_the_metric_is_fixed_when_the_number_is_drawn(swept):
    """To look at several metrics and take the nicest is another choice."""
    assert "drawn for a choice by accuracy" in selection(swept, "loss").cost


def test_test_records_of_the_very_users_choose_nothing(tmp_path):
    found = selection(sweep(tmp_path, "accuracy", strangers=False))
    assert found.cost == (
        "not covered (accuracy is a diagnostic of records that are held back from users who train)"
    )


def test_unknown_columns_are_diagnostics():
    assert str(metric_label("auc", main="accuracy", disjoint=True, certified=True)) == (
        "diagnostic of unknown records"
    )
    assert metric_label("auc", main="auc", disjoint=True, certified=True).name == "released"


def test_local_tests_are_diagnostics():
    for disjoint in (True, False):
        label = metric_label("local_accuracy", main="accuracy", disjoint=disjoint, certified=True)
        assert label.name == "diagnostic"


def copied(swept, tmp_path):
    return shutil.copytree(swept, tmp_path / "sweep")


def test_a_folder_that_does_not_say_is_not_covered(swept, tmp_path):
    folder = copied(swept, tmp_path)
    path = folder / "0" / "status.json"
    status = json.loads(path.read_text())
    del status["labels"]
    path.write_text(json.dumps(status))
    assert "diagnostic of unknown records" in selection(folder).cost


def test_invented_users_are_not_covered(swept, tmp_path):
    folder = copied(swept, tmp_path)
    path = folder / "0" / "status.json"
    status = json.loads(path.read_text())
    status["not_covered"].append(INVENTED)
    path.write_text(json.dumps(status))
    assert "users are drawn over those" in selection(folder).cost


def test_runs_that_protect_nobody_are_not_covered(swept, tmp_path):
    folder = copied(swept, tmp_path)
    for name, valid in (("0", True), ("1", False)):
        path = folder / name / "status.json"
        changed = {"randomness": "system", "dp_valid": valid}
        path.write_text(json.dumps(json.loads(path.read_text()) | changed))
    assert "these runs protect nobody (dp_valid): 1" in selection(folder).cost


def test_a_run_that_was_not_drawn_is_not_covered(swept, tmp_path):
    folder = copied(swept, tmp_path)
    (folder / "0").rename(folder / "2")
    assert selection(folder).cost == "not covered: 2 were not drawn"


def test_the_best_of_some_of_the_runs_is_not_covered(swept):
    [found] = fedpriv.load(swept / "0").report().selections
    assert "of the runs drawn 1 are not done, or not looked at" in found.cost


def test_a_run_with_another_seed_is_not_covered(swept, tmp_path):
    folder = copied(swept, tmp_path)
    config = folder / "1" / "config.yaml"
    config.write_text(config.read_text().replace("seed: 1", "seed: 7"))
    assert "1 have other seeds than drawn" in selection(folder).cost


def test_a_draw_of_an_earlier_version_fixes_no_metric(swept, tmp_path):
    folder = copied(swept, tmp_path)
    draw = json.loads((folder / DRAW).read_text())
    del draw["asked"]["metric"]
    (folder / DRAW).write_text(json.dumps(draw))
    assert selection(folder).cost.startswith("not covered")


@pytest.mark.parametrize("metric", ["train_loss", "contribution_norm", "local_accuracy", "auc"])
def test_a_sweep_cannot_be_drawn_for_a_diagnostic(metric, tmp_path):
    exps = [experiment("algo=uldp_avg", "rounds=1")]
    with pytest.raises(ConfigError, match=f"hydra.sweeper.metric={metric}: a metric of the rel"):
        RandomNumber(4.0, 1.0, metric).draw(tmp_path, [[]], exps, ["{}"])


def test_the_draw_keeps_the_metric(tmp_path):
    exps = [experiment("algo=uldp_avg", "rounds=1")]
    assert (
        RandomNumber(4.0, 1.0).draw(tmp_path / "a", [[]], exps, ["{}"]).asked["metric"]
        == "accuracy"
    )
    drawn = RandomNumber(4.0, 1.0, "loss").draw(tmp_path / "b", [[]], exps, ["{}"])
    assert drawn.asked["metric"] == "loss"


def test_the_table_shows_the_label(swept):
    runs = fedpriv.load(swept)
    assert set(runs.table(metric="train_loss")["label"]) == {"diagnostic of training records"}
    assert set(runs.table()["label"]) == {"released"}
    notes = runs.report(metric="train_loss").notes()
    assert "train_loss is a diagnostic of training records, which no epsilon covers" in notes
    assert "accuracy is released" in runs.report().notes()


def test_the_figure_shows_the_label(swept, tmp_path):
    out = fedpriv.load(swept).figure(tmp_path / "f.png", metric="train_loss")
    assert "diagnostic of training records" in out.with_suffix(".csv").read_text()


def test_a_model_without_a_certificate_has_no_released_metric(tmp_path):
    exp = experiment("algo=fedavg", "rounds=1")
    train(exp, "seed: 0", tmp_path / "run", quiet=True)
    labels = json.loads((tmp_path / "run" / "status.json").read_text())["labels"]
    assert labels["model.safetensors"] == "diagnostic of a model without a certificate"
    assert labels["metrics.csv"]["accuracy"] == "diagnostic of a model without a certificate"


def test_a_tracker_is_told_the_labels(tmp_path):
    from fedpriv.trackers.base import Log, Tracker, settings

    seen = {}

    @dataclass(frozen=True)
    class Listens(Tracker):
        def open(self, folder, config_yaml, *, known, after):
            seen.update(settings(config_yaml))
            return Log()

    exp = replace(experiment("algo=uldp_avg", "rounds=1"), tracker=Listens())
    train(exp, "seed: 0", tmp_path / "run", quiet=True)
    assert seen["labels.accuracy"] == "released"
    assert seen["labels.train_loss"] == "diagnostic of training records"
    assert seen["seed"] == 0
