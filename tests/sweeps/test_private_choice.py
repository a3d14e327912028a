"""Choice by a private score: what both populations pay, when it is covered, what is released."""

import json
import shutil

import pytest
from dp_accounting.dp_event import GaussianDpEvent, RepeatAndSelectDpEvent
from dp_accounting.rdp import RdpAccountant
from interrupted import Death, watched
from new_ledgers import new_ledger
from omegaconf import OmegaConf

import fedpriv
from fedpriv.accountants.renyi import ORDERS
from fedpriv.bundles.bundle import read_bundle
from fedpriv.errors import FedprivError
from fedpriv.ledgers.data_ledger import DataLedger
from fedpriv.projects.patients import csv_text
from fedpriv.reports.selection_cost import BEST, find_selections, release_choices
from fedpriv.runs.stopping import STOPPING
from fedpriv.runs.tables import STATISTICS
from fedpriv.sweeps.random_number import DRAW, SweepDraw

MEAN, NOISE, TARGET = 2.0, 6.0, 1.5
WORDS = (
    *("rounds=1", "preset.n_users=8", "algo.local_epochs=1", "accountant=rdp", "quiet=true"),
    *(f"algo.noise_multiplier={NOISE}", "evaluation=none", "algo.local_lr=0.01,0.1"),
    *("hydra/sweeper=random_number", f"hydra.sweeper.mean={MEAN}"),
    *(f"stop.target={TARGET}", "stop.every=1"),
)
SEED = "seed=14"  # of three runs


def choice(folder):
    [found] = find_selections(fedpriv.load(folder).runs, None)
    return found


@pytest.fixture(scope="module")
def swept(tmp_path_factory):
    """A finished sweep of several runs."""
    folder = tmp_path_factory.mktemp("choice") / "sweep"
    fedpriv.sweep(*WORDS, SEED, folder=folder)
    assert SweepDraw.read(folder).chosen == (1, 0, 1)
    return folder


def independent(noise):
    """One Gaussian release, and Papernot and Steinke's choice of it, by another library."""
    found = []
    for event in (GaussianDpEvent(noise), RepeatAndSelectDpEvent(GaussianDpEvent(noise), MEAN, 1)):
        accountant = RdpAccountant(ORDERS)
        accountant.compose(event)
        found.append(accountant.get_epsilon(1e-5))
    return found


def test_both_populations_pay_what_the_theorem_says(swept):
    draw = SweepDraw.read(swept)
    assert draw.tests_cost is not None
    noise = json.loads((swept / "0" / STOPPING / "status.json").read_text())["noise"]
    [tested] = noise.values()
    for cost, own in ((draw.cost, NOISE), (draw.tests_cost, tested)):
        assert [cost.one, cost.certified] == pytest.approx(independent(own), rel=1e-3)


def test_the_best_score_is_chosen_and_alone_released(swept):
    found = choice(swept)
    scores = {one.folder.parent.name: one.final("accuracy") for one in found.evaluations}
    assert found.best.folder.name == max(scores, key=scores.__getitem__)
    assert found.cost.startswith("covered: epsilon")
    assert "; test persons: epsilon" in found.cost
    bundle, draw = read_bundle(swept / BEST), found.draw
    assert {row["unit"]: float(row["certified"]) for row in bundle.certificate} == {
        "user": draw.cost.certified,
        "test person": draw.tests_cost.certified,
    }
    assert bundle.metrics["accuracy"].startswith(f"{scores[found.best.folder.name]:.4g} (charged")
    assert bundle.labels["metrics"] == "charged"
    one = read_bundle(found.best.folder / "bundle")
    assert {name: value.tolist() for name, value in bundle.tensors.items()} == {
        name: value.tolist() for name, value in one.tensors.items()
    }


def status(**facts):
    def edit(folder):
        path = folder / "status.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | facts))

    return edit


UNCHARGED = {STATISTICS: {"value": "diagnostic of a model without a certificate"}}


def spent(folder):
    path = folder / "epsilon.csv"
    path.write_text(path.read_text().replace(",1.4", ",14"))


def cut_short(folder):
    status(rounds=2)(folder)
    stored = OmegaConf.load(folder / "config.yaml")
    OmegaConf.save({**stored, "ledger": "ledger.jsonl"}, folder / "config.yaml")


CONDITIONS = {
    "every run is evaluated": (shutil.rmtree, "of the runs drawn 0 are not done"),
    "to its end": (status(state="interrupted"), "of the runs drawn 0 are not done"),
    "with noise": (status(labels=UNCHARGED), "is a diagnostic of a model without a certificate"),
    "once": (
        status(randomness="system", dp_valid=True, repeated_rounds={"1": 1}),
        "these evaluations repeated rounds after an interruption: 0",
    ),
    "protecting somebody": (
        status(randomness="system", dp_valid=False),
        "these evaluations protect nobody (dp_valid): 0",
    ),
    "whatever others spend": (cut_short, "these evaluations ended early, since others had spent"),
    "with the planned noise": (spent, "these evaluations spent more than the draw planned: 0"),
}


@pytest.mark.parametrize(("broken", "why"), CONDITIONS.values(), ids=CONDITIONS)
def test_no_broken_condition_is_called_covered(broken, why, swept, tmp_path):
    folder = shutil.copytree(swept, tmp_path / "sweep")
    shutil.rmtree(folder / BEST)
    broken(folder / "0" / STOPPING)
    found = choice(folder)
    assert why in found.cost
    assert found.cost.startswith("not covered")
    fedpriv.load(folder)
    assert not (folder / BEST).exists()


def test_a_damaged_certificate_of_the_best_run_ends_in_one_line(swept, tmp_path):
    folder = shutil.copytree(swept, tmp_path / "sweep")
    best = folder / choice(folder).best.folder.name
    (best / "bundle" / "certificate.csv").write_text("a,b\n1,2\n")
    with pytest.raises(FedprivError) as refusal:
        release_choices(find_selections(fedpriv.load(folder).runs, None))
    assert "\n" not in str(refusal.value)


def test_the_runs_of_a_choice_may_stop_early(tmp_path):
    longer = [word for word in WORDS if not word.startswith("rounds=")]
    fedpriv.sweep(*longer, SEED, "rounds=3", "stop.patience=1", folder=tmp_path / "sweep")
    found = choice(tmp_path / "sweep")
    assert found.cost.startswith("covered: epsilon")
    scores = [one.metrics["accuracy"] for one in found.evaluations]
    assert any(len(own) < 3 for own in scores)
    assert found.value == max(map(max, scores))
    told = read_bundle(tmp_path / "sweep" / BEST).metrics["accuracy"]
    assert told.startswith(f"{found.value:.4g} (charged")


def test_a_choice_by_another_score_is_not_covered(swept):
    [found] = find_selections(fedpriv.load(swept).runs, "loss")
    assert found.cost == "not covered: the number of runs was drawn for a choice by accuracy"


def test_a_sweep_that_dies_between_training_and_evaluation_goes_on(swept, tmp_path):
    sums = []

    def second(number):
        sums.append(number)
        if len(sums) == 2:
            raise Death

    with watched(lambda number: None, second), pytest.raises(Death):
        fedpriv.sweep(*WORDS, SEED, folder=tmp_path / "sweep", at_once=1)
    assert not (tmp_path / "sweep" / BEST).exists()
    fedpriv.sweep(*WORDS, SEED, folder=tmp_path / "sweep")
    for name in (DRAW, f"0/{STOPPING}/{STATISTICS}", f"{BEST}/model.safetensors"):
        assert (tmp_path / "sweep" / name).read_bytes() == (swept / name).read_bytes()


def test_runs_in_lock_step_do_not_wait_for_one_that_holds_their_ledger(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    path = new_ledger(tmp_path / "ledger.jsonl", epsilon=90.0, unit="user")
    words = (*WORDS[:6], "randomness=system", f"ledger={path}", "seed=0,1,2")
    done = fedpriv.sweep(*words, "algo.local_lr=0.1", folder=tmp_path / "sweep")
    assert len(done.runs) == len(DataLedger.seen(path).runs) == 3


def test_a_ledger_charges_every_run_and_every_evaluation(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    path = new_ledger(tmp_path / "ledger.jsonl", "patients", "tests", epsilon=90.0, unit="user")
    paid = (f"ledger={path}", "population=patients", "stop.population=tests")
    fedpriv.sweep(*WORDS, *paid, "randomness=system", folder=tmp_path / "sweep")
    number = len(SweepDraw.read(tmp_path / "sweep").chosen)
    charged = [run.population for run in DataLedger.seen(path).runs.values()]
    assert (charged.count("patients"), charged.count("tests")) == (number, number)
    assert choice(tmp_path / "sweep").cost.startswith("covered")


REFUSED = {
    "exact metrics": (("evaluation=exact",), "evaluation=exact: none"),
    "no score": (("stop.metric=error",), "stop.metric=error: loss"),
    "another metric": (
        ("hydra.sweeper.metric=loss",),
        "hydra.sweeper.metric=loss: null: stop.metric is the score that chooses",
    ),
    "nobody who pays": (
        ("ledger=a.jsonl", "randomness=system"),
        "stop.population=null: the population of the test records",
    ),
    "some with exact metrics": (
        ("stop.target=null,1", "rounds=5", "stop.every=5"),
        "stop.target in all settings or in none",
    ),
    "test persons who train": (
        ("data=mnist_odd_even", "data.replacement=true"),
        "data of which no test person trains",
    ),
    "losses that compare persons": (("data=tcga_brca",), "a task whose loss compares no records"),
}


@pytest.mark.parametrize(("more", "line"), REFUSED.values(), ids=REFUSED)
def test_refused_in_one_line_before_a_run_starts(more, line, tmp_path):
    with pytest.raises(FedprivError) as refusal:
        fedpriv.sweep(*WORDS, *more, folder=tmp_path / "sweep")
    assert line in str(refusal.value)
    assert "\n" not in str(refusal.value)
    assert not (tmp_path / "sweep").exists()


def test_exact_metrics_of_persons_choose_nothing(tmp_path):
    (tmp_path / "a.csv").write_text(csv_text())
    columns = ("data.label=died", "data.user=patient", "data.silo=hospital")
    exact = [word for word in WORDS if not word.startswith(("stop.", "evaluation="))]
    with pytest.raises(FedprivError, match="auc: a private score, since persons are tested: stop"):
        fedpriv.sweep(*exact, "data=table", f"data.path={tmp_path / 'a.csv'}", *columns)
