import pytest

from fedpriv.accountants.ledger import Ledger
from fedpriv.runs.epsilon_forecast import EpsilonForecast, calibrations
from fedpriv.runs.folder import RunFolder
from fedpriv.runs.loop import train
from fedpriv.testing.experiments import experiment


def test_queries_that_differ_cost_what_a_run_records(tmp_path):
    """Two of three silos a round: after five rounds they have taken part three or four times."""
    exp = experiment("algo=cdp_fedavg", "algo.cohort=2", "rounds=5", "algo.local_steps=2")
    train(exp, "", tmp_path / "run")
    last = [row for row in RunFolder(tmp_path / "run").rows("epsilon.csv") if row["round"] == "5"]
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
    exp = experiment(
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
