"""The audit against code that is right, claims that are false, and faults planted in the code.

Trials are counted, not timed, so that every result is the same on every machine.
"""

import torch

from fedpriv.audit.audit import Effort, audit
from fedpriv.mechanisms.gaussian import Gaussian
from fedpriv.testing import experiment

ULDP = ["algo=uldp_sgd", "algo.noise_multiplier=1", "allocator.n_silos=1"]


def audited(*words, trials, colluding=1):
    """Rows by observer and unit."""
    rows = audit(experiment("accountant=pld", *words), Effort(1e9, trials), colluding=colluding)
    return {(row.observer, row.unit): row for row in rows}


def test_a_worst_canary_attains_most_of_a_certificate_and_never_more():
    rows = audited(*ULDP, "rounds=1", trials=800)
    row = rows["released model", "user"]
    assert 0.6 * row.certified < row.bound.audited <= row.certified
    assert row.assumed == "GDP"
    assert not any(row.alarm for row in rows.values())
    assert rows["silo", "user"].certified == float("inf")  # the only silo knows all of the noise


def test_noise_sized_for_one_silo_too_many_is_caught(monkeypatch):
    share = Gaussian.noise_share
    monkeypatch.setattr(
        Gaussian, "noise_share", lambda self, size, shares, *a, **k: share(self, size, shares + 1, *a, **k)
    )
    row = audited(*ULDP, "rounds=1", trials=900)["released model", "user"]
    assert row.alarm


def test_a_clip_that_misses_a_part_of_the_vector_is_caught(monkeypatch):
    bound = Gaussian.bound

    def half(self, vectors):
        clipped, norms = bound(self, vectors[:, :2])
        return torch.cat([clipped, vectors[:, 2:].double()], dim=1), norms

    assert not audited(*ULDP, "rounds=1", trials=100)["released model", "user"].alarm
    monkeypatch.setattr(Gaussian, "bound", half)
    assert audited(*ULDP, "rounds=1", trials=100)["released model", "user"].alarm


def test_the_claim_of_uldp_naive_is_refuted_and_its_certificate_stands():
    rows = audited(
        "algo=uldp_naive",
        "algo.calibration=paper",
        "algo.noise_multiplier=1",
        "algo.local_epochs=1",
        "rounds=1",
        trials=150,
    )
    row = rows["released model", "user"]
    assert row.claimed < row.bound.audited <= row.certified


def test_the_claim_of_dp_erm_is_refuted_and_its_certificate_stands():
    words = ["algo=dp_erm", "aggregation=masked", "algo.calibration=paper", "algo.local_steps=1", "algo.epsilon=5"]
    rows = audited(*words, "allocator=equal", "allocator.n_users=10", "allocator.n_silos=10", "rounds=1", trials=100)
    row = rows["server", "record"]
    assert row.claimed < row.bound.audited <= row.certified


def test_colluding_silos_see_more_and_are_certified_less():
    words = ["algo=uldp_sgd", "algo.noise_multiplier=1", "rounds=1"]
    one, two = (audited(*words, trials=120, colluding=silos)["silo", "user"] for silos in (1, 2))
    assert one.certified < two.certified
    assert one.bound.audited < two.bound.audited <= two.certified
