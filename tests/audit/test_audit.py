"""The audit against code that is right, claims that are false, and faults planted in the code.

Trials are counted, not timed, so that every result is the same on every machine.
"""

import pytest
from planted_bugs import clip_of_a_part, order_by_position
from public_schema import SCHEMA

from fedpriv.audit.audit import Effort, audit
from fedpriv.mechanisms.binomial import Binomial
from fedpriv.mechanisms.gaussian import Gaussian
from fedpriv.projects.patients import csv_text
from fedpriv.testing import experiment

ULDP = ["algo=uldp_sgd", "algo.noise_multiplier=1", "allocator.n_silos=1"]


pytestmark = pytest.mark.usefixtures("no_premises")


def audited(*words, trials, colluding=1):
    """Rows by observer and unit."""
    rows = audit(experiment("accountant=pld", *words), Effort(1e9, trials), colluding=colluding)
    return {(row.observer, row.unit): row for row in rows}


def test_a_worst_canary_attains_most_of_a_certificate_and_never_more():
    rows = audited(*ULDP, "rounds=1", trials=500)
    row = rows[MODEL]
    assert 0.6 * row.certified < row.bound.audited <= row.certified
    assert row.assumed == "GDP"
    assert not any(row.alarm for row in rows.values())
    assert ("silo", "user") not in rows  # the only silo holds all records


def test_a_bound_that_adapts_leaves_most_of_a_certificate_attainable():
    rows = audited(*ULDP, "mechanism=adaptive", "rounds=2", trials=200)
    assert 0.4 * rows[MODEL].certified < rows[MODEL].bound.audited <= rows[MODEL].certified
    assert not any(row.alarm for row in rows.values())


@pytest.mark.parametrize(
    ("trials", "share"), [(40, 0.0), pytest.param(300, 0.4, marks=pytest.mark.slow)]
)
def test_a_user_at_home_attains_most_of_a_certificate_and_never_more(trials, share, tmp_path):
    """With weight 1 in one of three silos."""
    (tmp_path / "visits.csv").write_text(csv_text(patients=20))
    (tmp_path / "schema.yaml").write_text(SCHEMA)
    table = ["data=table", f"data.path={tmp_path}/visits.csv", "data.outside=accept"]
    table += [f"data.schema={tmp_path}/schema.yaml", "allocator=by_user", "allocator.n_silos=3"]
    home = [*table, "algo.weighting=home", "model=linear"]
    rows = audited(*home, "algo=uldp_sgd", "algo.noise_multiplier=1", "rounds=1", trials=trials)
    assert share * rows[MODEL].certified < rows[MODEL].bound.audited <= rows[MODEL].certified
    assert not any(row.alarm for row in rows.values())


def noise_for_one_silo_too_many(patch):
    share = Gaussian.noise_share
    patch.setattr(
        Gaussian,
        "noise_share",
        lambda self, size, shares, *a, **k: share(self, size, shares + 1, *a, **k),
    )


def half_of_the_noise(patch):
    share = Binomial.noise_share
    patch.setattr(Binomial, "noise_share", lambda self, *a, **k: share(self, *a, **k) / 2)


IN_BATCHES = [
    "algo=uldp_avg",
    "algo.noise_multiplier=1",
    "algo.local_epochs=2",
    "algo.batch_size=8",
    "rounds=1",
]
SHUFFLED = ["aggregation=shuffle", "algo.calibration=given", "algo.noise_multiplier=2", "rounds=1"]
MODEL = ("released model", "user")
PLANTED = [
    (noise_for_one_silo_too_many, [*ULDP, "rounds=1"], 500, [MODEL]),
    (clip_of_a_part, [*ULDP, "rounds=1"], 100, [MODEL]),
    (
        half_of_the_noise,
        ["algo=prox_sgd", *SHUFFLED],
        300,
        [("server", "record"), ("shuffler", "record")],
    ),
]


@pytest.mark.parametrize(("plant", "words", "trials", "alarmed"), PLANTED)
def test_a_planted_fault_is_caught(plant, words, trials, alarmed, monkeypatch):
    plant(monkeypatch)
    rows = audited(*words, trials=trials)
    assert all(rows[about].alarm for about in alarmed)


def test_a_broken_premise_is_an_alarm_too(monkeypatch):
    monkeypatch.undo()
    order_by_position(monkeypatch)
    assert audited(*IN_BATCHES, trials=30)[MODEL].alarm


@pytest.mark.parametrize(("words", "trials"), [([*ULDP, "rounds=1"], 100), (IN_BATCHES, 30)])
def test_without_the_fault_there_is_no_alarm(words, trials):
    assert not audited(*words, trials=trials)[MODEL].alarm


@pytest.mark.slow
def test_silos_that_are_answered_together_keep_their_batches_from_trial_to_trial():
    """With other orders in each, a clean audit raises an alarm: everybody moves in its trials."""
    devices = ["allocator=equal", "preset.n_silos=3", "allocator.local_test=0", "model=linear"]
    words = [*IN_BATCHES, *devices, "algo.weighting=records", "randomness=system"]
    rows = audited("data=breast_cancer", *words, trials=40)
    assert not any(row.alarm for row in rows.values())


NAIVE = ["algo=uldp_naive", "algo.noise_multiplier=1", "algo.local_epochs=1", "rounds=1"]
ERM = ["algo=dp_erm", "aggregation=masked", "algo.local_steps=1", "algo.epsilon=5", "rounds=1"]
ERM += ["allocator=equal", "allocator.n_users=10", "allocator.n_silos=10"]
# Records that run away from zero amplify what the first step shows, under that step's noise alone.
CDP = ["algo=cdp_fedavg", "algo.local_steps=4", "allocator.n_users=10", "rounds=1"]


@pytest.mark.parametrize(
    ("words", "trials", "about"),
    [
        (NAIVE, 80, MODEL),
        (ERM, 100, ("server", "record")),
        pytest.param(CDP, 150, ("server", "record"), marks=pytest.mark.slow),
    ],
)
def test_the_paper_s_claim_is_refuted_and_the_certificate_stands(words, trials, about):
    row = audited(*words, "algo.calibration=paper", trials=trials)[about]
    assert row.claimed < row.bound.audited <= row.certified


@pytest.mark.parametrize("algo", ["prox_sgd", pytest.param("spider", marks=pytest.mark.slow)])
def test_the_shuffler_is_audited_with_each_silos_ones(algo):
    """It sees more than the server and is certified less, and its bound is near its own
    certificate."""
    rows = audited(f"algo={algo}", *SHUFFLED, trials=600)
    server, shuffler = (rows[observer, "record"] for observer in ("server", "shuffler"))
    assert 0.6 * server.certified < server.bound.audited <= server.certified
    assert (
        max(server.certified, 0.6 * shuffler.certified)
        < shuffler.bound.audited
        <= shuffler.certified
    )


@pytest.mark.slow
def test_a_peer_is_audited_with_every_peers_vector():
    admm = [
        "aggregation=admm",
        "aggregation.preset=null",
        "aggregation.iterations=32",
        "aggregation.beyond_safe=true",
    ]
    words = ["algo=uldp_avg", "algo.noise_multiplier=1", "algo.local_epochs=1", "rounds=1"]
    row = audited(*words, *admm, trials=100)["silo", "user"]
    assert 0 < row.bound.audited <= row.certified


def test_colluding_silos_see_more_and_are_certified_less():
    words = ["algo=uldp_sgd", "algo.noise_multiplier=1", "rounds=1"]
    one, two = (audited(*words, trials=60, colluding=silos)["silo", "user"] for silos in (1, 2))
    assert one.certified < two.certified
    assert one.bound.audited < two.bound.audited <= two.certified


@pytest.mark.parametrize("algo", ["fedavg", "scaffold"])
def test_a_method_without_noise_is_certified_nothing_and_told_apart(algo):
    row = audited(f"algo={algo}", "algo.local_epochs=1", "rounds=1", trials=20)[
        "released model", "user"
    ]
    assert row.certified == float("inf")
    assert row.bound.epsilon > 1
