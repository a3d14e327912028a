"""The audit against code that is right, claims that are false, and faults planted in the code.

Trials are counted, not timed, so that every result is the same on every machine.
"""

from contextlib import closing
from dataclasses import replace

import numpy as np
import pytest
import torch

from fedpriv.audit.audit import Effort, audit, subjects
from fedpriv.audit.trials import first_attack
from fedpriv.mechanisms.binomial import Binomial
from fedpriv.mechanisms.gaussian import Gaussian
from fedpriv.runtime.silo import _Work
from fedpriv.testing import experiment
from fedpriv.util.streams import Streams

ULDP = ["algo=uldp_sgd", "algo.noise_multiplier=1", "allocator.n_silos=1"]


def audited(*words, trials, colluding=1):
    """Rows by observer and unit."""
    rows = audit(experiment("accountant=pld", *words), Effort(1e9, trials), colluding=colluding)
    return {(row.observer, row.unit): row for row in rows}


def test_a_worst_canary_attains_most_of_a_certificate_and_never_more():
    rows = audited(*ULDP, "rounds=1", trials=500)
    row = rows["released model", "user"]
    assert 0.6 * row.certified < row.bound.audited <= row.certified
    assert row.assumed == "GDP"
    assert not any(row.alarm for row in rows.values())
    assert rows["silo", "user"].certified == float("inf")  # the only silo knows all of the noise


def test_noise_sized_for_one_silo_too_many_is_caught(monkeypatch):
    share = Gaussian.noise_share
    monkeypatch.setattr(
        Gaussian,
        "noise_share",
        lambda self, size, shares, *a, **k: share(self, size, shares + 1, *a, **k),
    )
    row = audited(*ULDP, "rounds=1", trials=500)["released model", "user"]
    assert row.alarm


def test_a_clip_that_misses_a_part_of_the_vector_is_caught(monkeypatch):
    bound = Gaussian.bound

    def half(self, vectors):
        clipped, norms = bound(self, vectors[:, :2])
        return torch.cat([clipped, vectors[:, 2:].double()], dim=1), norms

    assert not audited(*ULDP, "rounds=1", trials=100)["released model", "user"].alarm
    monkeypatch.setattr(Gaussian, "bound", half)
    assert audited(*ULDP, "rounds=1", trials=100)["released model", "user"].alarm


IN_BATCHES = [
    "algo=uldp_avg",
    "algo.noise_multiplier=1",
    "algo.local_epochs=2",
    "algo.batch_size=8",
    "rounds=1",
]


@pytest.mark.parametrize("shared", [False, True])
def test_batches_that_are_drawn_by_position_are_caught(monkeypatch, shared):
    """Each user's order comes from its place among those who are there: a user less, and all later
    ones change."""
    keys = Streams.unit_keys

    def by_position(self, purpose, round, party, units):
        return keys(
            self, purpose, round, party, np.arange(len(units)) if purpose == "batches" else units
        )

    if shared:
        monkeypatch.setattr(Streams, "unit_keys", by_position)
    assert audited(*IN_BATCHES, trials=30)["released model", "user"].alarm == shared


@pytest.mark.slow
def test_silos_that_are_answered_together_keep_their_batches_from_trial_to_trial():
    """With other orders in each, a clean audit raises an alarm: everybody moves in its trials."""
    devices = ["allocator=equal", "preset.n_silos=3", "allocator.local_test=0", "model=linear"]
    words = [*IN_BATCHES, *devices, "algo.weighting=records", "randomness=system"]
    rows = audited("data=breast_cancer", *words, trials=40)
    assert not any(row.alarm for row in rows.values())


@pytest.mark.parametrize("kept", [pytest.param(False, marks=pytest.mark.slow), True])
def test_a_sample_that_is_kept_for_all_rounds_is_caught(monkeypatch, kept):
    secret = Streams.secret

    def first(self, purpose, round, party=""):
        return secret(self, purpose, 1 if purpose == "user sample" else round, party)

    if kept:
        monkeypatch.setattr(Streams, "secret", first)
    words = [
        "algo=uldp_sgd",
        "algo.noise_multiplier=1",
        "algo.user_rate=0.1",
        "allocator.n_silos=1",
        "rounds=12",
    ]
    row = audited(*words, trials=100)["released model", "user"]
    assert row.assumed in ("sampled", "any mechanism")
    assert row.alarm == kept


def fresh(share):
    """Other noise of about the same size, from the share itself so that every test run is the
    same.
    """
    return np.random.default_rng(share.view(np.uint64)).normal(0, share.std(), share.shape)


@pytest.mark.parametrize(
    ("again", "rounds", "caught"),
    [(lambda share: share, 2, False), (np.zeros_like, 2, True), (fresh, 1, True)],
)
def test_a_resume_that_repeats_a_round_with_other_noise_or_none_is_caught(
    monkeypatch, again, rounds, caught
):
    """Seeded, a round begun again is charged once because it is the same bits."""
    noise, drawn = _Work._noise, {}

    def forgetful(self, local, query):
        silo, (share, secret) = self.participant.silo, noise(self, local, query)
        key = id(silo.plan), query.round, silo.name
        if drawn.setdefault(key, silo.plan) is silo.plan and key in seen:
            return again(share), secret
        seen.add(key)
        return share, secret

    seen = set()
    monkeypatch.setattr(_Work, "_noise", forgetful)
    assert audited(*ULDP, f"rounds={rounds}", trials=300)["released model", "user"].alarm == caught


@pytest.mark.parametrize("resumes", [False, True])
def test_a_run_whose_noise_depends_on_its_state_is_resumed_under_masks(resumes):
    """The run without noise beside it needs new masks too."""
    exp = experiment("algo=dp_erm", "aggregation=masked", "allocator.n_users=10", "rounds=2")
    [subject] = subjects(exp, 1)
    attack = first_attack(exp, subject.plan, subject.events, 1)
    attack = replace(attack, resumes=resumes, quiet_run=attack.noiseless_run())
    with closing(attack):
        _, scores = attack.scores(1)
    assert all(np.isfinite(score).all() for score in scores.values())


def test_the_claim_of_uldp_naive_is_refuted_and_its_certificate_stands():
    rows = audited(
        "algo=uldp_naive",
        "algo.calibration=paper",
        "algo.noise_multiplier=1",
        "algo.local_epochs=1",
        "rounds=1",
        trials=80,
    )
    row = rows["released model", "user"]
    assert row.claimed < row.bound.audited <= row.certified


def test_the_claim_of_dp_erm_is_refuted_and_its_certificate_stands():
    words = [
        "algo=dp_erm",
        "aggregation=masked",
        "algo.calibration=paper",
        "algo.local_steps=1",
        "algo.epsilon=5",
    ]
    rows = audited(
        *words,
        "allocator=equal",
        "allocator.n_users=10",
        "allocator.n_silos=10",
        "rounds=1",
        trials=100,
    )
    row = rows["server", "record"]
    assert row.claimed < row.bound.audited <= row.certified


@pytest.mark.slow
def test_the_claim_of_cdp_fedavg_is_refuted_and_its_certificate_stands():
    """Records that run away from zero amplify what the first step shows, under that step's noise
    alone."""
    words = [
        "algo=cdp_fedavg",
        "algo.calibration=paper",
        "algo.local_steps=4",
        "allocator.n_users=10",
        "rounds=1",
    ]
    row = audited(*words, trials=150)["server", "record"]
    assert row.claimed < row.bound.audited <= row.certified


SHUFFLED = ["aggregation=shuffle", "algo.calibration=given", "algo.noise_multiplier=2", "rounds=1"]


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


def test_half_the_noise_is_caught_in_counts(monkeypatch):
    share = Binomial.noise_share
    monkeypatch.setattr(Binomial, "noise_share", lambda self, *a, **k: share(self, *a, **k) / 2)
    rows = audited("algo=prox_sgd", *SHUFFLED, trials=300)
    assert rows["server", "record"].alarm
    assert rows["shuffler", "record"].alarm


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
