"""MR-MTL: silos' own models with a pull to their mean, and an epsilon for each silo's records."""

from dataclasses import dataclass, replace

import numpy as np
import pytest
from plain_loop import RATE, close, fedpriv_rounds, local_change

from fedpriv.accountants.ledger import Ledger
from fedpriv.algorithms.budgets import Spending, needed_noise
from fedpriv.algorithms.mr_mtl import MrMtl
from fedpriv.errors import ConfigError
from fedpriv.rounds.query import events_of
from fedpriv.runs.release import labels_of
from fedpriv.runtime import prepare
from fedpriv.settings.compose import one_experiment
from fedpriv.testing import experiment
from fedpriv.testing.draws import sample_premises
from fedpriv.testing.experiments import SMALL
from fedpriv.testing.premise import sharing_level


@pytest.mark.parametrize(
    ("aggregation", "pull"), [("plain", 0.0), ("masked", 0.7), ("plain", 1 / RATE)]
)
def test_three_rounds_of_a_plain_loop(pull, aggregation):
    words = ("algo=mr_mtl", f"algo.proximal={pull}", f"aggregation={aggregation}")
    start, after, prepared = fedpriv_rounds(3, *words)
    own, mean = [start] * 3, start
    for found in after:
        own = [
            params + local_change(prepared, silo, params, pull=pull, anchor=mean)
            for silo, params in enumerate(own)
        ]
        mean = np.mean(own, axis=0)
        close(found, mean)
    models = prepared.algo.evaluated(prepared.state, prepared.standing.silo_states)
    close(models, own)
    assert np.linalg.norm(models[0] - models[1]) > 0.01


def test_a_silo_that_is_in_no_sum_goes_on_with_its_own_model():
    """The mean is that of the others."""
    words = ("algo=mr_mtl", "algo.proximal=1", "aggregation=secagg")
    exp = experiment(*SMALL, *words, "aggregation.threshold=2", "aggregation.cohort=2")
    with prepare(exp) as prepared:
        for number in (1, 2):
            result = prepared.run_round(prepared.queries(number), prepared.state)
            prepared.state = result.state
        prepared.arrays(prepared.state)
        models = prepared.algo.evaluated(prepared.state, prepared.standing.silo_states)
    pairs = [np.mean(np.delete(models, left, axis=0), axis=0) for left in range(3)]
    nearest = [np.abs(pair - prepared.state.params).max() for pair in pairs]
    assert min(nearest) < 1e-6


EPSILONS = (1.0, 3.0, 10.0)


def test_each_silo_has_the_epsilon_of_its_own():
    """Of the releases in its scope alone; the run's is the largest."""
    exp = experiment(*SMALL, "algo=mr_mtl", f"algo.epsilons={[*EPSILONS]}", "rounds=5")
    with prepare(exp) as prepared:
        events = [event for number in range(1, 6) for event in events_of(prepared.queries(number))]
        multipliers = prepared.algo.needed(prepared.plan.federation)
    assert {(event.unit, event.adjacency) for event in events} == {("record", "add/remove")}
    for observer in ("released model", "server", "silo"):
        for silo, epsilon in enumerate(EPSILONS):
            ledger = Ledger(exp.accountant)
            ledger.record(
                event
                for event in events
                if (event.observer, event.scope) == (observer, f"silo{silo}")
            )
            spent = min(row.certified for row in ledger.rows(5))
            assert 0.99 * epsilon < spent <= epsilon * (1 + 1e-6)
    assert (
        multipliers[0] > multipliers[1] > multipliers[2] == prepared.plan.mechanism.noise_multiplier
    )
    assert multipliers[1] == needed_noise(3.0, Spending(10, 1e-5, 1.0))


def test_the_steps_of_each_silo_have_its_own_noise():
    """A silo's model moves by one noised sum a round, of which the signal hardly changes."""
    words = (*SMALL, "algo=mr_mtl", "algo.proximal=0", "algo.clip=0.001", "algo.local_epochs=1")
    exp = experiment(*words, f"algo.epsilons={[*EPSILONS]}", "rounds=24")
    models = []
    with prepare(exp) as prepared:
        for number in range(1, 25):
            prepared.state = prepared.run_round(prepared.queries(number), prepared.state).state
            prepared.arrays(prepared.state)
            memories = prepared.standing.silo_states
            models.append(prepared.algo.evaluated(prepared.state, memories))
        records = prepared.plan.federation.silo_records
        multipliers = prepared.algo.needed(prepared.plan.federation)
    scale = np.array(records)[:, None] / (0.001 * exp.algo.local_lr)
    noise = np.diff(models, axis=0) * scale
    found = (noise - noise.mean(axis=0)).std(axis=(0, 2))
    np.testing.assert_allclose(found, multipliers, rtol=0.05)


@dataclass(frozen=True)
class TwiceAsMany(MrMtl):
    """Draws twice as many records in each step as declared."""

    def noisy_change(self, *what, **how):
        eager = replace(self, batch_size=2 * self.batch_size, local_epochs=2 * self.local_epochs)
        return MrMtl.noisy_change(eager, *what, **how)


@pytest.mark.parametrize(("cls", "alarms"), [(MrMtl, False), (TwiceAsMany, True)])
def test_samples_are_counted_by_step_as_models_remember_earlier_ones(cls, alarms):
    words = ("algo=mr_mtl", "algo.batch_size=20", "algo.proximal=4", "algo.local_epochs=1")
    exp = experiment(*SMALL, *words, "rounds=2")
    values = {name: value for name, value in vars(exp.algo).items() if name not in FIXED}
    found = sample_premises(replace(exp, algo=cls(**values)), rounds=2, seconds=0)
    assert any(premise.alarm for premise in sharing_level([*found])) == alarms


FIXED = ("global_lr", "group_size")


def test_what_silos_keep_is_labelled_by_what_it_is_made_of():
    """Models of noised steps cost nothing more when they are evaluated; others are diagnostics."""
    labels = {}
    for words in ("algo=mr_mtl", "algo=mr_mtl mechanism=none", "algo=local_only", "algo=fedavg"):
        exp = experiment(*SMALL, *words.split())
        with prepare(exp) as prepared:
            found = labels_of(exp, prepared)
        labels[words] = found["metrics.csv"]["accuracy"], found["model.safetensors"]
    uncertified = "diagnostic of a model without a certificate"
    assert labels == {
        "algo=mr_mtl": ("released", "charged"),
        "algo=mr_mtl mechanism=none": (uncertified, uncertified),
        "algo=local_only": (uncertified, uncertified),
        "algo=fedavg": (uncertified, uncertified),
    }


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("algo.local_lr=0.2 algo.proximal=6", r"algo\.proximal=6.0: 0 to 5, 1 / local_lr"),
        ("algo.epsilons=[1,2]", r"algo\.epsilons=2 numbers: 3 numbers, one a silo, or null"),
        ("algo.epsilons=[1,2,0]", r"algo\.epsilons=0.*: positive numbers"),
        ("algo.epsilons=[1,2,3] mechanism=none", r"algo\.epsilons=.*: null: this mechanism"),
        ("algo.epsilons=[1,2,3] algo.noise_multiplier=2", r"no effect with algo\.epsilons"),
        ("algo.rounds=7", r"algo\.rounds=7: has no effect with algo\.epsilons=null"),
        ("data=tcga_brca", "another for this data set, whose loss compares records"),
    ],
)
def test_what_cannot_work_is_refused(words, message):
    with pytest.raises(ConfigError, match=message):
        one_experiment(*SMALL, "algo=mr_mtl", *words.split())
