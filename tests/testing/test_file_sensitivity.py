"""From the file to the noise: shipped methods on several data sets, with records deleted from the
raw file, or with other content. `check_algorithm` does it for every method in the fast suite: see
conformance/test_algorithms.py."""

import csv
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest

from fedpriv.algorithms.record_gradients import record_form
from fedpriv.data.allocate import Natural
from fedpriv.data.base import Corpus, DataSet, Records
from fedpriv.data.embedded import BreastCancer
from fedpriv.models.tasks import BinaryClassification
from fedpriv.settings.words import conf_dir
from fedpriv.testing import experiment
from fedpriv.testing.experiments import with_training_records
from fedpriv.testing.neighbouring_files import File
from fedpriv.testing.sensitivity import EXACT, chosen_units, distances
from fedpriv.util.streams import Streams

NO_TRAINING = {"statistics", "evaluation"}
METHODS = sorted({path.stem for path in (Path(conf_dir()) / "algo").glob("*.yaml")} - NO_TRAINING)
"""The others have tests of their own."""
UNCERTIFIED = {
    *("fedavg", "fedopt", "fedprox", "local_only", "scaffold", "secured_fl"),
    *("uldp_group_max", "uldp_group_median"),
}
"""Methods without noise, or with a k that is read off private counts."""
FEDERATION = ("preset.n_users=12", "preset.n_silos=3", "aggregation=plain", "rounds=4")
LOCAL = ("preset.local_epochs=3", "preset.silo_epochs=2", "preset.batch_size=8")
GIVEN = ("algo.calibration=given", "algo.noise_multiplier=1")
DROPOUT = ("model=mlp", "model.hidden=[12,12]", "model.norm=true", "model.dropout=0.5")
DATA = ["breast_cancer", "digits", "creditcard"]


def words(method):
    """A method's name and settings; the noise needs no target here."""
    name, *own = method.split()
    text = "".join(path.read_text() for path in (Path(conf_dir()) / "algo").glob(f"{name}.yaml"))
    inherits = name in ("cdp_fedavg_5", "dp_sgd", "els")
    given = GIVEN if "calibration: certified" in text or inherits else ()
    given = GIVEN[1:] if name == "uldp_naive" else given
    return (f"algo={name}", *given, *own)


@pytest.fixture
def folder(small_root, monkeypatch):
    """The generated files are found wherever a command would look."""
    monkeypatch.setenv("FEDPRIV_DATA", small_root)


def check(found, *, certified=True):
    """No unit moves what is given to the noise by more than its certificate charges."""
    assert any(one.certified for one in found) == certified
    for one in found:
        assert not one.premise(EXACT).alarm, one


ADAPTIVE = {
    "uldp_avg mechanism=adaptive": 0.2,
    "uldp_naive mechanism=adaptive": 0.02,  # a silo's update hardly depends on one user
    "minibatch_sgd mechanism=adaptive mechanism.share=0.5": 0.2,
    "cdp_fedavg mechanism=adaptive mechanism.share=0.5 algo.local_steps=3": 0.2,
}


@pytest.mark.parametrize(("method", "least"), ADAPTIVE.items())
def test_vectors_and_marks_together_move_by_what_is_charged(method, least):
    exp = experiment(*FEDERATION, *LOCAL, *words(method))
    check(found := distances(exp, users=3, records=3, rounds=2))
    assert max(one.ratio for one in found) > least


VARIANTS = [
    *ADAPTIVE,
    "uldp_avg algo.user_rate=0.6",
    "uldp_avg_w algo.user_rate=0.6",
    "uldp_sgd algo.weighting=records algo.user_rate=0.6",
    "uldp_avg algo.cycle=3 mechanism=correlated",
    "uldp_sgd algo.cycle=2 algo.user_rate=0.6 mechanism=correlated",
    "uldp_avg trainer=plain",
    "uldp_avg trainer=compiled",
    "uldp_avg optimizer=adam",
    "uldp_avg algo.batch_size=100000 algo.local_epochs=40",
    "uldp_avg algo.batch_size=100000 algo.local_epochs=40 trainer=plain",
    "uldp_avg_w algo.local_epochs=20",
    "uldp_group algo.group_size=all",
    "uldp_group algo.group_size=5 algo.batch_size=100000",
    "minibatch_sgd algo.sampling=poisson algo.batch_size=20",
    "minibatch_sgd algo.sampling=poisson",
    "minibatch_sgd algo.sampling=poisson algo.records_per_user=4 algo.batch_size=3",
    "minibatch_sgd algo.records_per_user=4 algo.batch_size=3",
    "minibatch_sgd algo.sampling=with_replacement algo.batch_size=20",
    "prox_svrg algo.sampling=poisson",
    "spider algo.sampling=poisson algo.variant=alternate",
    "prox_sgd algo.records_per_user=4",
    "cdp_fedavg algo.records_per_user=4 algo.local_steps=3",
    "cdp_fedavg algo.batch_size=8 algo.local_steps=40",
    "local_sgd algo.local_steps=1",
    "dp_erm algo.records_per_user=4 algo.local_steps=3",
]
EVERYBODY = {"users": 10**6, "records": 100}


@pytest.mark.slow
@pytest.mark.parametrize("network", [(), DROPOUT], ids=["default", "dropout"])
@pytest.mark.parametrize("data", DATA)
@pytest.mark.parametrize("method", [*METHODS, *VARIANTS])
def test_every_user_and_a_hundred_records(method, data, network, folder):
    exp = experiment(f"data={data}", *network, *FEDERATION, *LOCAL, *words(method))
    found = distances(exp, **EVERYBODY, rounds=2 if "erm" not in method else 1)
    print(method, data, *(f"{one.relation} {one.target.unit}: {one.ratio!r}" for one in found))
    check(found, certified=method not in UNCERTIFIED)


SHUFFLED = [one for one in (*METHODS, *VARIANTS) if one.startswith(("mini", "prox", "spider"))]
for refused in (
    "minibatch_sgd algo.sampling=with_replacement algo.batch_size=20",
    "minibatch_sgd mechanism=adaptive mechanism.share=0.5",
):
    SHUFFLED.remove(refused)


@pytest.mark.slow
@pytest.mark.parametrize("data", DATA)
@pytest.mark.parametrize("method", SHUFFLED)
def test_a_vector_for_each_record(method, data, folder):
    """The form of these methods under shuffle, before levels and bits."""
    exp = experiment(f"data={data}", *FEDERATION, *LOCAL, *words(method))
    check(distances(replace(exp, algo=record_form(exp.algo)), **EVERYBODY, rounds=2))


@pytest.mark.parametrize("shuffled", [False, True])
def test_a_record_absent_from_the_file_changes_nobody_elses_coin(shuffled):
    """Rates and divisors made of the records that are there let others in: up to 3.35 bounds."""
    given = ("algo.calibration=given", "algo.noise_multiplier=1", "rounds=30", "aggregation=plain")
    exp = experiment("algo=minibatch_sgd", "algo.sampling=poisson", "preset.n_users=12", *given)
    exp = replace(exp, algo=record_form(exp.algo)) if shuffled else exp
    [found] = distances(exp, records=15)
    assert 0.5 < found.ratio <= 1 + EXACT


def test_opposite_records_move_a_silo_by_all_that_is_charged(folder):
    """Else a certificate that is half of what it should be would pass. Rates fall from round to
    round here, and each is charged with its own."""
    exp = experiment("algo=dp_erm", *FEDERATION, *LOCAL, *words("dp_erm"), "algo.local_steps=2")
    check(found := distances(exp, records=24))
    assert found[0].ratio > 0.9


def test_messages_that_repeat_a_sampled_users_sum_are_charged_together(folder):
    """Their certificate has one release, in the round in which the user is drawn. Each message
    alone would tell less, also where the strategy is stronger than the one that is charged."""
    method = "uldp_sgd algo.cycle=2 algo.user_rate=0.6 mechanism=correlated"
    exp = experiment("data=breast_cancer", *FEDERATION, *LOCAL, *words(method))
    check(found := distances(exp, users=12, records=0, rounds=2))
    assert found[0].ratio > 0.95


ONE_USER_A_SILO = ("allocator=equal", "preset.n_silos=6", "allocator.local_test=0", "rounds=3")


@pytest.mark.parametrize("aggregation", ["plain", "masked"])
def test_silos_that_are_answered_together_move_by_what_is_charged(aggregation, folder):
    """With batches in an order that both runs share: drawn anew, they move the sum by 1.26 bounds
    without any difference in the file."""
    own = ("algo=uldp_avg", "algo.weighting=records", f"aggregation={aggregation}")
    exp = experiment("data=breast_cancer", *ONE_USER_A_SILO, *LOCAL, *own)
    check(found := distances(exp, users=4, records=2, rounds=2))
    assert found[0].ratio == pytest.approx(1, abs=EXACT)


def test_steps_of_one_record_are_compared_step_by_step():
    """A record is in two of a round's ten batches: as one sum both count, 1.51 times what one
    is charged for."""
    exp = experiment("data=artificial", "data.size=48", *ONE_USER_A_SILO, *words("cdp_fedavg"))
    check(found := distances(exp, records=4, rounds=2))
    assert found[0].ratio > 0.5


def test_the_extremes_of_a_file_are_among_the_few_units_that_are_tried():
    """A bound that fails for one user in sixty, or one record in 455, is rarely met by chance."""
    exp = experiment(
        "algo=uldp_avg", "allocator=zipf", "preset.n_users=60", *LOCAL, *FEDERATION[1:]
    )
    far = np.array(File.of(exp).records.x)
    far[333] *= 50

    def stretched(records):
        return replace(records, x=far)

    exp = with_training_records(exp, stretched)
    file = File.of(exp)
    sizes = [len(rows) for rows in file.units("user")]
    wide = [len(set(file.owners.silo[rows])) for rows in file.units("user")]
    users = chosen_units(file, "user", 8)
    assert len(set(users)) == 8
    assert {int(np.argmax(sizes)), int(np.argmax(wide))} <= set(users[:4])
    assert 333 in chosen_units(file, "record", 8)[:4]
    found = distances(exp, users=4, records=2)
    check(found)
    assert [one.tried for one in found] == [4, 2]
    assert found[0].worst in chosen_units(file, "user", 4)
    assert f"user {found[0].worst} moves most" in str(found[0])


@dataclass(frozen=True)
class Table(DataSet):
    """A file with a line for each record: its number, patient, hospital, label and features."""

    shape = (30,)
    outputs = 1
    task = BinaryClassification()
    natural_users = True
    natural_silos = 3

    def load(self, streams):
        cells = np.array([[float(cell) for cell in line] for line in lines(self.root)])
        number, user, silo = cells[:, :3].astype(np.int64).T
        train = Records(cells[:, 4:].astype(np.float32), cells[:, 3].astype(np.float32), silo, user)
        return Corpus(replace(train, number=number), train)


def lines(path):
    with open(path) as file:
        return list(csv.reader(file))


@dataclass(frozen=True)
class TableFile(File):
    """Lines are deleted from the file itself."""

    def without(self, rows):
        path = Path(self.exp.data.root)
        left = path.with_name("left.csv")
        kept = [line for at, line in enumerate(lines(path)) if at not in set(rows.tolist())]
        with left.open("w", newline="") as file:
            csv.writer(file).writerows(kept)
        return replace(super().without(rows), data=Table(str(left)))


@pytest.fixture
def table(tmp_path):
    """100 records of 9 patients, in random order, in three hospitals."""
    rng = np.random.default_rng(1)
    train = BreastCancer().load(Streams(0)).train
    path = tmp_path / "table.csv"
    owners = rng.permutation(np.concatenate([np.arange(9), rng.integers(0, 4, 91)]))
    with path.open("w", newline="") as file:
        for number, user in enumerate(owners):
            silo = (user + rng.integers(2)) % 3
            features = [float(cell) for cell in train.x[number]]
            csv.writer(file).writerow([number, user, silo, float(train.y[number]), *features])
    return Table(str(path))


def on_table(method, data):
    """A method whose users and silos the file names."""
    exp = experiment("data=breast_cancer", "aggregation=plain", *LOCAL, *words(method))
    return replace(exp, data=data, allocator=Natural(9, 3))


@pytest.mark.parametrize("method", ["uldp_avg", "uldp_avg_w", "uldp_group_2", "uldp_group"])
def test_lines_deleted_from_a_file(method, table):
    """Every patient, the last one too, and single lines; truncation then lets others in."""
    exp = on_table(method, table)
    file = TableFile.of(exp)
    rows = file.units("user")[8]
    left = file.without(rows).data.load(Streams(0)).train.number
    np.testing.assert_array_equal(left, np.delete(np.arange(100), rows))
    found = distances(exp, records=10, file=file)
    check(found)
    assert [one.tried for one in found if one.certified] == [9, 10]
    assert all(one.ratio > 0 for one in found if one.certified)
