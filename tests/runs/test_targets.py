"""What rounds will cost, and runs whose noise is solved for `accountant.target`."""

import json
from dataclasses import replace
from itertools import cycle

import pandas as pd
import pytest
from command import refusal, run, success
from interrupted import Death, dies_in, run_or_resume
from runs import experiment

from fedpriv.accountants.ledger import Ledger
from fedpriv.runs.epsilon_forecast import EpsilonForecast, calibrations
from fedpriv.runs.folder import RunFolder
from fedpriv.runs.loop import train
from fedpriv.runtime import prepare
from fedpriv.testing import experiment as shipped

TARGET = "accountant.target=1.5"


def headline(folder):
    """The released model's smallest certificate after each recorded round."""
    table = pd.read_csv(folder / "epsilon.csv")
    return table[table.observer == "released model"].groupby("round").certified.min()


def test_a_run_ends_at_its_target_and_says_what_it_means(tmp_path):
    done = success(TARGET, "rounds=3", "hydra.run.dir=out", cwd=tmp_path)
    status = json.loads((tmp_path / "out" / "status.json").read_text())
    spent = headline(tmp_path / "out")
    assert list(spent.index) == [1, 2, 3]
    assert 1.4999 < spent.iloc[-1] <= 1.5
    about = status["target"]
    assert about["certified"] == spent.iloc[-1]
    assert (about["unit"], about["observer"], about["rounds"]) == ("user", "released model", 3)
    assert about["noise"] == status["noise"]
    log = (tmp_path / "out" / "run.log").read_text()
    assert "unit user (add/remove), against the released model" in log
    # A silo knows its own noise, so its epsilon is larger, and that is said.
    assert "Against the silo, a user has epsilon" in done.stdout
    assert "more than accountant.target=1.5" in log


def test_the_noise_belongs_to_the_identity_of_a_run():
    digests = []
    for target in (1.5, 2.5, 1.5):
        with prepare(experiment(f"accountant.target={target}", "accountant=pld")) as prepared:
            digests.append(prepared.facts.identity.effective)
    assert digests[0] == digests[2] != digests[1]


@pytest.mark.parametrize("randomness", ["system", "simulation"])
def test_a_repeated_round_ends_a_run_before_its_target(randomness, tmp_path):
    """With system randomness each attempt is charged, and the noise is made for one attempt. A
    seeded run repeats a round for nothing."""
    folder = tmp_path / "run"
    words = ("rounds=4", f"randomness={randomness}", "accountant=rdp", TARGET)
    with pytest.raises(Death), dies_in(2, sums=[]):
        run_or_resume(folder, *words)
    run_or_resume(folder, *words, resume=True)
    status = json.loads((folder / "status.json").read_text())
    assert status["state"] == "done"
    assert "4" not in status["repeated_rounds"]
    assert headline(folder).iloc[-1] <= 1.5
    if randomness == "system":
        assert status["reason"] == "round 4 would exceed accountant.target=1.5"
    else:
        assert list(headline(folder).index) == [1, 2, 3, 4]
        assert headline(folder).iloc[-1] > 1.4999


def test_a_target_fixes_the_number_of_rounds(tmp_path):
    assert run(TARGET, "rounds=2", "hydra.run.dir=out", cwd=tmp_path).returncode == 0
    line = refusal("resume=out", "rounds=5", cwd=tmp_path)
    assert line.strip() == (
        "fedpriv: rounds=5: 2: the noise of accountant.target=1.5 was solved for 2 rounds"
    )
    swept = ("-m", TARGET, "seed=0", "hydra/launcher=side_by_side", "hydra.sweep.dir=s")
    assert run(*swept, "rounds=2", cwd=tmp_path).returncode == 0
    longer = run(*swept, "rounds=3", cwd=tmp_path)
    assert longer.returncode == 2
    assert "was solved for 2 rounds" in longer.stderr


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (
            "algo.noise_multiplier=4",
            "algo.noise_multiplier=4: has no effect with accountant.target",
        ),
        # that of the method's file, which would be ignored as well
        ("algo.noise_multiplier=5.0", "algo.noise_multiplier=5.0: has no effect"),
        ("mechanism.noise_multiplier=4", "mechanism.noise_multiplier=4: has no effect with"),
        ("algo=dp_sgd algo.epsilon=4", "algo.epsilon=4: has no effect with accountant.target"),
        ("algo=dp_sgd algo.observer=silo", "algo.observer=silo: has no effect"),
        ("algo=dp_sgd algo.calibration=given", "algo.calibration=given: certified, because"),
        ("algo=minibatch_sgd algo.calibration=paper", "algo.calibration=paper: certified"),
        ("accountant.budget=3", "accountant.budget=3.0: null: accountant.target=1.5 is the limit"),
        ("algo=fedavg", "accountant.target=1.5: null: mechanism=none adds no noise"),
        ("algo=uldp_group_max", "is the max of private record counts"),
        (
            "algo.rounds=20 algo.budgets={a:{epsilon:1,share:0.5},b:{epsilon:4,share:0.5}}",
            "each group of users has its own (algo.budgets)",
        ),
    ],
)
def test_settings_that_contradict_a_target_are_refused(words, text, tmp_path):
    assert text in refusal("epsilon", TARGET, *words.split(), cwd=tmp_path)


def test_an_observer_that_is_reported_first_may_be_chosen(tmp_path):
    words = ("algo=local_sgd", "algo.observer=silo", TARGET, "rounds=2")
    solved = EpsilonForecast.of(experiment(*words)).target
    assert solved is not None
    assert solved.observer == "silo"


BUDGETS = [
    "algo=uldp_avg",
    "algo=uldp_avg algo.user_rate=0.3 rounds=7",
    "algo=uldp_naive rounds=13",
    "algo=uldp_sgd aggregation=masked aggregation.bits=32",
    "algo=dp_sgd rounds=11",
    "algo=cdp_fedavg algo.cohort=2 rounds=5",
    "algo=dp_erm rounds=3",
    "algo=local_sgd",
    "algo=minibatch_sgd algo.records_per_user=2 rounds=6 allocator.n_users=200",
    "algo=minibatch_sgd aggregation=shuffle rounds=6",
    "algo=spider rounds=7",
    "algo=prox_svrg rounds=9",
    "algo=prox_sgd rounds=9",
    "algo=localized_mb_sgd rounds=9",
]


@pytest.mark.parametrize(("words", "budget"), zip(BUDGETS, cycle((0.7, 3.0))))
def test_the_noise_recommended_for_a_budget_is_within_it(words, budget):
    """The number as it is printed, not only the one that was found."""
    forecast = EpsilonForecast.of(experiment(*words.split(), "accountant=rdp"))
    rounds = forecast.exp.options.rounds
    line = calibrations(forecast, budget)[1]
    assert line.startswith(f"epsilon {budget:g}: {rounds} rounds at noise ")
    assert line.endswith(f"(accountant.target={budget:g})")
    printed = float(line.split(" at noise ")[1].split()[0])
    set_to = EpsilonForecast.of(
        replace(forecast.exp, accountant=replace(forecast.exp.accountant, target=budget))
    )
    assert printed == pytest.approx(set_to.noise, rel=1e-5)
    assert printed >= set_to.noise
    scaled = set_to.with_noise(printed)
    assert scaled.cost.spent(forecast.exp.accountant, rounds) <= budget


def test_queries_that_differ_cost_what_a_run_records(tmp_path):
    """Two of three silos a round: after five rounds they have taken part three or four times."""
    exp = shipped("algo=cdp_fedavg", "algo.cohort=2", "rounds=5", "algo.local_steps=2")
    train(exp, "", tmp_path / "run")
    last = [
        row for row in RunFolder(tmp_path / "run").tables.rows("epsilon.csv") if row["round"] == "5"
    ]
    planned = EpsilonForecast.of(exp)
    rows = planned.rows_at([2, 5])
    assert [row.round for row in rows] == [2] * 6 + [5] * 6
    recorded = {(row["observer"], row["method"]): float(row["certified"]) for row in last}
    for row in rows[6:]:
        assert row.certified == pytest.approx(recorded[row.observer, row.method], rel=1e-12)
    # as if the first round came five times
    alike = Ledger(exp.accountant)
    [first] = exp.algo.queries(1, planned.plan)
    alike.record(first.events, 5)
    assert max(row.certified for row in alike.rows(5)) > max(row.certified for row in rows) * 1.05


def test_a_budget_is_answered_within_the_planned_rounds():
    exp = shipped(
        "algo=cdp_fedavg", "algo.cohort=2", "rounds=6", "algo.epsilon=4", "accountant=pld"
    )
    planned = EpsilonForecast.of(exp)
    assert calibrations(planned, 100.0)[0].startswith("epsilon 100: at least 6 rounds")
    few = int(calibrations(planned, 2.0)[0].split()[2])
    sigma = planned.plan.mechanism.noise_multiplier
    assert (
        planned.spent(exp.accountant, sigma, few)
        <= 2.0
        < planned.spent(exp.accountant, sigma, few + 1)
    )
    noise = float(calibrations(planned, 2.0)[1].split()[-2])
    assert noise > sigma
