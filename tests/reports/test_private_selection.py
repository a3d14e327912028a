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
from fedpriv.sweeps.random_number import DRAW, Asked, RandomNumber, SweepDraw, configured

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

    task = Classification()

    @property
    def disjoint_test(self):
        return self.strangers

    read_without_noise = ()

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
        {"seed": number, "rounds": 1, "settings": list(words)}
        for number, words in enumerate(SETTINGS)
    ]
    for number, (exp, config) in enumerate(zip(exps, configs)):
        train(exp, yaml.safe_dump(config), folder / str(number), quiet=True)
    sweeper = RandomNumber(10.0, 1.0)
    asked = Asked(sweeper.mean, sweeper.shape, 0, SETTINGS, metric)
    draw = SweepDraw(asked, (0, 1), (1, 1), tuple(map(configured, configs)), sweeper.cost(exps))
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


def test_the_metric_that_was_fixed_when_the_number_was_drawn_chooses(swept):
    """It is one of the released model on strangers. To look at several metrics and take the nicest
    is another choice."""
    assert selection(swept).cost.startswith("covered: epsilon")
    assert not fedpriv.load(swept).report().best  # nor is it called a choice by looking at all
    assert selection(swept, "accuracy").cost.startswith("covered: epsilon")
    assert "drawn for a choice by accuracy" in selection(swept, "loss").cost


def test_test_records_of_the_very_users_choose_nothing(tmp_path):
    found = selection(sweep(tmp_path, "accuracy", strangers=False))
    assert found.cost == (
        "not covered (accuracy is a diagnostic of records that are held back from users who train)"
    )


@pytest.mark.parametrize(
    ("metric", "main", "disjoint", "label"),
    [
        ("auc", "accuracy", True, "diagnostic of unknown records"),
        ("auc", "auc", True, "released"),
        ("local_accuracy", "accuracy", True, "diagnostic of"),
        ("local_accuracy", "accuracy", False, "diagnostic of"),
    ],
)
def test_labels_of_metrics(metric, main, disjoint, label):
    found = metric_label(metric, main=main, disjoint=disjoint, certified=True)
    assert found.startswith(label)


def edit_json(path, change):
    values = json.loads(path.read_text())
    change(values)
    path.write_text(json.dumps(values))


def protects_nobody(folder):
    for name, valid in (("0", True), ("1", False)):
        changed = {"randomness": "system", "dp_valid": valid}
        edit_json(folder / name / "status.json", lambda status, c=changed: status.update(c))


def other_seed(folder):
    config = folder / "1" / "config.yaml"
    config.write_text(config.read_text().replace("seed: 1", "seed: 7"))


EDITS = {
    "no labels": (
        lambda folder: edit_json(
            folder / "0/status.json", lambda status: status["labels"].pop("metrics.csv")
        ),
        "diagnostic of unknown records",
    ),
    "invented users": (
        lambda folder: edit_json(
            folder / "0/status.json", lambda status: status["not_covered"].append(INVENTED)
        ),
        "users are drawn over those",
    ),
    "nobody is protected": (protects_nobody, "these runs protect nobody (dp_valid): 1"),
    "a run that was not drawn": (
        lambda folder: (folder / "0").rename(folder / "2"),
        "not covered: 2 were not drawn",
    ),
    "another seed": (other_seed, "1 have other seeds than drawn"),
}


@pytest.mark.parametrize(("edit", "why"), EDITS.values(), ids=EDITS)
def test_what_the_folder_says_is_not_covered(swept, tmp_path, edit, why):
    folder = shutil.copytree(swept, tmp_path / "sweep")
    edit(folder)
    assert why in selection(folder).cost


def test_the_best_of_some_of_the_runs_is_not_covered(swept):
    [found] = fedpriv.load(swept / "0").report().selections
    assert "of the runs drawn 1 are not done, or not looked at" in found.cost


@pytest.mark.parametrize("metric", ["train_loss", "contribution_norm", "local_accuracy", "auc"])
def test_a_sweep_cannot_be_drawn_for_a_diagnostic(metric, tmp_path):
    exps = [experiment("algo=uldp_avg", "rounds=1")]
    with pytest.raises(ConfigError, match=f"hydra.sweeper.metric={metric}: a metric of the rel"):
        RandomNumber(4.0, 1.0, metric).draw(tmp_path, [[]], exps, [{}])


def test_tables_and_figures_show_the_label(swept, tmp_path):
    runs = fedpriv.load(swept)
    assert set(runs.table(metric="train_loss")["label"]) == {"diagnostic of training records"}
    assert set(runs.table()["label"]) == {"released"}
    notes = runs.report(metric="train_loss").notes()
    assert "train_loss is a diagnostic of training records, which no epsilon covers" in notes
    assert "accuracy is released" in runs.report().notes()
    out = runs.figure(tmp_path / "f.png", metric="train_loss")
    assert "diagnostic of training records" in out.with_name(f"{out.name}.csv").read_text()


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
