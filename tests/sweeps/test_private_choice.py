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
from fedpriv.reports.selection_cost import BEST, find_selections, release_choices
from fedpriv.runs.run_evaluation import EVALUATION
from fedpriv.runs.tables import ASSUMPTIONS, STATISTICS
from fedpriv.sweeps.random_number import DRAW, SweepDraw

MEAN, NOISE, TARGET = 2.0, 6.0, 1.5
WORDS = (
    *("rounds=1", "preset.n_users=8", "algo.local_epochs=1", "accountant=rdp", "quiet=true"),
    *(f"algo.noise_multiplier={NOISE}", "evaluation=none", "algo.local_lr=0.01,0.1"),
    *("hydra/sweeper=random_number", f"hydra.sweeper.mean={MEAN}"),
    f"hydra.sweeper.evaluation_target={TARGET}",
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
    assert draw.evaluation_cost is not None
    noise = json.loads((swept / "0" / EVALUATION / "status.json").read_text())["noise"]
    [tested] = noise.values()
    for cost, own in ((draw.cost, NOISE), (draw.evaluation_cost, tested)):
        assert [cost.one, cost.certified] == pytest.approx(independent(own), rel=1e-3)


def test_the_best_score_is_chosen_and_alone_released(swept):
    found = choice(swept)
    scores = {number: one.final("accuracy") for number, one in found.evaluations.items()}
    assert found.best.folder.name == max(scores, key=scores.__getitem__)
    assert found.cost.startswith("covered: epsilon")
    assert "; test persons: epsilon" in found.cost
    bundle, draw = read_bundle(swept / BEST), found.draw
    assert {row["unit"]: float(row["certified"]) for row in bundle.certificate} == {
        "user": draw.cost.certified,
        "test person": draw.evaluation_cost.certified,
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


def config(key, value):
    def edit(folder):
        stored = OmegaConf.load(folder / "config.yaml")
        OmegaConf.update(stored, key, value)
        OmegaConf.save(stored, folder / "config.yaml")

    return edit


UNCHARGED = {STATISTICS: {"value": "diagnostic of a model without a certificate"}}


def other_model(folder):
    (folder.parent / "model.safetensors").write_bytes(b"another")


def spent(folder):
    path = folder / "epsilon.csv"
    path.write_text(path.read_text().replace(",1.4", ",14"))


def cut_short(folder):
    status(reason="round 1 would exceed epsilon 3 of tests in the ledger")(folder)
    config("ledger", "ledger.jsonl")(folder)


CONDITIONS = {
    "every run is evaluated": (shutil.rmtree, "0 has no finished evaluation"),
    "to its end": (status(state="interrupted"), "0 has no finished evaluation"),
    "with noise": (status(labels=UNCHARGED), "is a diagnostic of a model without a certificate"),
    "at the same price": (
        config("accountant.target", 3.0),
        "the evaluation of 0 has other settings than drawn: accountant",
    ),
    "in the same way": (
        config("algo.most_loss", 9.0),
        "the evaluation of 0 has other settings than drawn: algo",
    ),
    "on the same persons": (config("seed", 1), "has another seed"),
    "of the run's own model": (other_model, "the evaluation of 0 is of another model"),
    "of a model that is there": (
        lambda folder: (folder.parent / "model.safetensors").unlink(),
        "the model of 0 cannot be read",
    ),
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
    broken(folder / "0" / EVALUATION)
    found = choice(folder)
    assert why in found.cost
    assert found.cost.startswith("not covered")
    fedpriv.load(folder)
    assert not (folder / BEST).exists()


@pytest.mark.parametrize("part", ["", EVALUATION])
def test_a_damaged_table_of_the_best_run_ends_in_one_line(part, swept, tmp_path):
    folder = shutil.copytree(swept, tmp_path / "sweep")
    best = folder / choice(folder).best.folder.name / part
    (best / ASSUMPTIONS).write_text("a,b\n1,2\n")
    with pytest.raises(FedprivError, match="its files cannot be read") as refusal:
        release_choices(find_selections(fedpriv.load(folder).runs, None))
    assert "\n" not in str(refusal.value)


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
    for name in (DRAW, f"0/{EVALUATION}/{STATISTICS}", f"{BEST}/model.safetensors"):
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
    paid = (f"ledger={path}", "population=patients", "hydra.sweeper.evaluation_population=tests")
    fedpriv.sweep(*WORDS, *paid, "randomness=system", folder=tmp_path / "sweep")
    number = len(SweepDraw.read(tmp_path / "sweep").chosen)
    charged = [run.population for run in DataLedger.seen(path).runs.values()]
    assert (charged.count("patients"), charged.count("tests")) == (number, number)
    assert choice(tmp_path / "sweep").cost.startswith("covered")


REFUSED = {
    "exact metrics": (("evaluation=exact",), "evaluation=exact: none"),
    "no score": (("hydra.sweeper.metric=error",), "metric=error: a score of the evaluation: loss"),
    "nobody who pays": (
        ("ledger=a.jsonl", "randomness=system"),
        "evaluation_population=null: the population of the test records",
    ),
    "payer without ledger": (("hydra.sweeper.evaluation_population=a",), "if and only if ledger"),
    "payer of nothing": (
        ("hydra.sweeper.evaluation_target=null", "hydra.sweeper.evaluation_population=a"),
        "null, unless hydra.sweeper.evaluation_target",
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
