"""The methods of Lowy et al. with one contribution a record, as `aggregation=shuffle` takes
them.
"""

import math
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from erm_world import prepared, silos_of
from lowy_world import (
    CERTIFIED,
    FEDERATION,
    METHODS,
    MINIBATCH,
    ONE_PASS,
    SVRG,
    named,
    proximal_descent,
    states_of,
)
from plans import charged, make_plan

from fedpriv.accountants.pld import Pld
from fedpriv.aggregation.shuffle import Shuffle
from fedpriv.algorithms.record_gradients import record_form
from fedpriv.errors import ConfigError
from fedpriv.mechanisms.binomial import Binomial
from fedpriv.testing import check_algorithm, experiment

WORDS = ("aggregation=shuffle",)


def rows_of(algo, mechanism=None, federation=FEDERATION, rounds=None):
    """PLD rows by observer after all rounds."""
    records = record_form(algo)
    plan = make_plan(records, mechanism or Binomial(1.0, 0.0), Shuffle(), federation=federation)
    rows = charged(records, plan, rounds or algo.rounds, Pld(algo.delta))
    return {row.observer: row for row in rows}, plan


POISSON = ("algo.sampling=poisson", "algo.batch_size=30")
SLOW = ["minibatch_sgd", "prox_svrg", "prox_pl_svrg", "spider", "spider algo.variant=alternate"]


@pytest.mark.parametrize(
    ("algo", "words"),
    [
        ("prox_sgd", ()),
        pytest.param("minibatch_sgd", POISSON, marks=pytest.mark.slow),
        *(
            pytest.param(algo, words, marks=pytest.mark.slow)
            for algo in SLOW
            for words in ((), POISSON)
        ),
    ],
    ids=str,
)
def test_a_shuffled_method_keeps_every_rule_and_its_noise_hides_a_record(algo, words):
    given = ("algo.calibration=given", "algo.noise_multiplier=20", "rounds=4")
    exp = experiment(f"algo={algo.split()[0]}", *algo.split()[1:], *words, *given)
    # Many levels, since differences between two points that are near each other would all round to
    # one.
    found = check_algorithm(exp.algo, *WORDS, "mechanism.levels=1048576")
    adjacency = "add/remove" if words else "replace"
    measured = [name for name in found.checked if f"record, {adjacency}" in name]
    assert {name.split(":")[0] for name in measured} == set(exp.algo.mechanisms(exp.mechanism))
    assert any("message of silo" in name for name in measured)
    assert found.declared == ()


OBSERVED = [
    (algo, ("server", "silo", "shuffler")[(place + more) % 3], cohort)
    for place, algo in enumerate(METHODS)
    for more, cohort in enumerate((None, 2))
]


@pytest.mark.parametrize(("algo", "observer", "cohort"), OBSERVED)
def test_all_releases_together_cost_the_epsilon_that_is_asked_for(algo, observer, cohort):
    rows, _ = rows_of(replace(algo, **CERTIFIED, cohort=cohort, observer=observer))
    assert 3.0 * (1 - 1e-3) <= rows[observer].certified <= 3.0 * (1 + 1e-6)
    assert rows["server"].certified <= rows["silo"].certified <= rows["shuffler"].certified
    assert {row.unit for row in rows.values()} == {"record"}
    assert {row.status for row in rows.values()} == {"enforced"}


def test_silos_that_add_no_noise_are_accounted():
    quiet = replace(MINIBATCH, **CERTIFIED)
    full, partly = (rows_of(quiet, Binomial(1.0, 0.0, silent=part)) for part in (0.0, 0.3))
    assert partly[0]["server"].certified == pytest.approx(full[0]["server"].certified, rel=1e-3)
    assert partly[0]["silo"].certified > full[0]["silo"].certified
    assert math.isinf(partly[0]["shuffler"].certified)
    assert any(
        "at most 0.3 of the silos add no noise" in text for text in partly[0]["server"].assumptions
    )
    with pytest.raises(ConfigError, match=r"mechanism\.silent=0\.3"):
        rows_of(replace(quiet, observer="shuffler"), Binomial(1.0, 0.0, silent=0.3))
    # One that does not know 3 of 4 shares may lack 0.3 of them: calibrated, it is at the target all
    # the same.
    rows, _ = rows_of(replace(quiet, observer="silo"), Binomial(1.0, 0.0, silent=0.3))
    assert rows["silo"].certified == pytest.approx(3.0, rel=1e-3)


@pytest.mark.parametrize("algo", METHODS, ids=named)
def test_the_papers_noise_has_the_papers_claim_and_is_far_too_much(algo):
    rows, plan = rows_of(replace(algo, **CERTIFIED | {"calibration": "paper"}))
    assert rows["server"].claimed == pytest.approx(3.0, rel=1e-6)
    assert rows["released model"].claimed == rows["server"].claimed
    assert rows["silo"].claimed is None
    assert rows["shuffler"].claimed is None
    assert rows["server"].certified < 0.1
    sizes = {name: algo_size(algo, name) for name in plan.query_parameters}
    for name, parameters in plan.query_parameters.items():
        assert parameters.mechanism.levels == max(2 * math.ceil(math.sqrt(sizes[name])), 10)


def test_the_papers_noise_of_svrg_is_for_the_rounds_that_ask():
    algo = replace(SVRG, rounds=6)
    asked = Counter(name for round in range(1, 7) for name in algo.query_names(round))
    assert asked == {"gradient": 2, "difference": 6}
    assert {name: algo.counted(name) for name in asked} == asked


def algo_size(algo, name):
    algo = replace(algo, **CERTIFIED)
    return sum(algo.size(name, records) for records in FEDERATION.silo_records)


def test_the_papers_budget_of_a_pass_is_halved_times_the_silos_left_out():
    """eps0 = N eps / (2 M) by the paper: half as many silos stand twice the epsilon, or a quarter
    of the noise bits."""
    noises = []
    for cohort in (None, 2):
        algo = replace(ONE_PASS, **CERTIFIED | {"calibration": "paper"}, cohort=cohort)
        parameters = rows_of(algo, rounds=1)[1].query_parameters["gradient"]
        noises.append(parameters.mechanism.noise_multiplier)
    log = [math.log(4 * 101 / (1e-5 * left)) for left in (0.5, 1.0)]
    assert noises[0] / noises[1] == pytest.approx(2 * log[0] / log[1], rel=1e-3)


@pytest.mark.parametrize("algo", METHODS, ids=named)
def test_without_noise_the_shuffled_method_is_the_plain_one_up_to_rounding(algo):
    silos = silos_of([30, 30, 30])
    plain = prepared(replace(algo, clip=1e3), silos)
    shuffled = prepared(
        replace(algo, clip=1e3), silos, aggregation=Shuffle(), mechanism=Binomial(1e3, 0.0, 2**40)
    )
    for one, other in zip(states_of(plain, 6), states_of(shuffled, 6)):
        np.testing.assert_allclose(one.params, other.params, atol=2e-5)


def test_silos_of_different_sizes_count_by_their_batches():
    """Full batches: gradient descent on all records pooled."""
    silos = silos_of([30, 60])
    algo = replace(MINIBATCH, batch_size=None, clip=1e3, rounds=1)  # batches of n
    sim = prepared(algo, silos, aggregation=Shuffle(), mechanism=Binomial(1e3, 0.0, 2**40))
    x, y = (np.concatenate([getattr(silo, part).numpy() for silo in silos]) for part in ("x", "y"))
    start = sim.state.params
    import torch

    from fedpriv.training.per_record import RecordGradients

    gradients = RecordGradients(sim.model, sim.evaluation.task, 1, x.shape[1:], torch.float32)
    theta, x, y = (
        torch.from_numpy(start).float(),
        torch.from_numpy(x).unsqueeze(1),
        torch.from_numpy(y).unsqueeze(1),
    )
    mean = gradients(theta, x, y, {}).double().mean(0).numpy()
    [state] = states_of(sim, 1)
    expected = next(proximal_descent(start, lambda _: mean, algo, 1))
    np.testing.assert_allclose(state.params, expected, atol=1e-5)


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("algo=local_sgd",), "a contribution of Local SGD"),
        (("algo=cdp_fedavg",), "is not one record's"),
        (
            ("algo=minibatch_sgd", "algo.sampling=with_replacement"),
            r"algo\.sampling=with_replacement",
        ),
        (
            ("algo=prox_sgd", "algo.least_cohort=2"),
            r"algo\.least_cohort=2: null: all silos of a sum share",
        ),
        (("algo=prox_sgd", "mechanism=gaussian"), "binomial: aggregation=shuffle counts bits"),
        (
            ("algo=prox_sgd", "algo.observer=nobody"),
            "an observer of this aggregation: released model, server, silo, s",
        ),
    ],
)
def test_what_shuffling_cannot_serve_is_refused(words, why):
    with pytest.raises(ConfigError, match=why):
        experiment(*WORDS, *words)
