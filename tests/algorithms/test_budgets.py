"""Groups of users with an epsilon of their own: certificates by independent accounting, bounds by
measurement."""

import json
import math

import dp_accounting as dp
import numpy as np
import pandas as pd
import pytest
from dp_accounting.pld import PLDAccountant
from totals import total

from fedpriv.accountants.events import ADD_REMOVE, Event
from fedpriv.accountants.ledger import Ledger, headline, headlines
from fedpriv.accountants.rdp import Rdp
from fedpriv.algorithms.budgets import listed_groups
from fedpriv.audit.audit import Effort, audit
from fedpriv.errors import ConfigError, FedprivError
from fedpriv.reports.finished_runs import user_epsilons
from fedpriv.rounds import bounding, one_row
from fedpriv.rounds.user_groups import membership
from fedpriv.runs.epsilon_forecast import EpsilonForecast
from fedpriv.runs.loop import train
from fedpriv.runtime import prepare
from fedpriv.runtime.identity import digest_plan
from fedpriv.testing import ConformanceError, check_algorithm, experiment
from fedpriv.testing.neighbouring_files import File

EPSILONS = {"strict": 0.5, "middle": 1.5, "open": 4.0}
BUDGETS = (
    "{strict:{epsilon:0.5,share:0.6},middle:{epsilon:1.5,share:0.4},open:{epsilon:4,users:[1,3]}}"
)
TWO = "{strict:{epsilon:0.5,share:0.5},open:{epsilon:4,share:0.5}}"
CLIP, ROUNDS, DELTA, USERS, SILOS = 0.3, 7, 1e-5, 12, 3
BUDGETED = ["algo=uldp_avg", "algo.rounds=50"]
SIZES = [f"preset.n_users={USERS}", f"preset.n_silos={SILOS}", f"rounds={ROUNDS}"]


def world(*words, algo="uldp_avg", budgets=BUDGETS):
    return experiment(
        *[f"algo={algo}", *SIZES, f"algo.clip={CLIP}"],
        *[f"algo.budgets={budgets}", "algo.rounds=${rounds}", *words],
    )


def rows(exp, method="pld"):
    found = EpsilonForecast.of(exp).rows_at([exp.options.rounds])
    return {(row.observer, row.group): row.certified for row in found if row.method == method}


def clips(exp):
    """The bound of each group: how the framework limits contributions, not how it accounts."""
    contributors = exp.algo.contributors
    groups = membership(contributors.groups, USERS)
    bounds = CLIP * contributors.bounds(exp.federation, 1)
    return {group.name: bounds[groups == i][0] for i, group in enumerate(contributors.groups)}


def deviation(exp):
    return exp.planner.plan(exp.federation).mechanism.noise_multiplier * CLIP


@pytest.mark.parametrize("algo", ["uldp_avg", "uldp_sgd"])
def test_every_observers_epsilon_is_that_of_the_noise_over_the_groups_bound(algo):
    exp = world(algo=algo)
    noise, found = deviation(exp), rows(exp)
    assert found.keys() == {
        (observer, group)
        for observer in ("released model", "server", "silo", "cheating server")
        for group in EPSILONS
    }
    for group, clip in clips(exp).items():
        z = noise / clip / math.sqrt(ROUNDS)
        assert found["released model", group] == pytest.approx(
            dp.get_epsilon_gaussian(z, DELTA), abs=1e-6
        )
        assert found["released model", group] == pytest.approx(EPSILONS[group], abs=1e-6)
        assert found["released model", group] <= EPSILONS[group]
        # Equal weights: the server's single messages tell no more than their sum.
        assert found["server", group] == found["released model", group]
        assert found["cheating server", group] == found["server", group]
        known = z * math.sqrt((SILOS - 1) / SILOS)
        assert found["silo", group] == pytest.approx(
            dp.get_epsilon_gaussian(known, DELTA), abs=1e-6
        )


def test_sampled_groups_spend_their_budgets_against_an_observer_without_the_sample():
    exp = world("algo.user_rate=0.3")
    noise, found = deviation(exp), rows(exp)
    for group, clip in clips(exp).items():
        sampled = dp.PoissonSampledDpEvent(0.3, dp.GaussianDpEvent(noise / clip))
        accountant = PLDAccountant().compose(sampled, ROUNDS)
        expected = pytest.approx(accountant.get_epsilon(DELTA), abs=1e-5)  # two discretisations
        assert found["released model", group] == expected
        assert 0.99 * EPSILONS[group] < found["released model", group] <= EPSILONS[group]
        # The server sees the sample.
        z = noise / clip / math.sqrt(ROUNDS)
        assert found["server", group] == pytest.approx(dp.get_epsilon_gaussian(z, DELTA), abs=1e-6)


@pytest.mark.parametrize("algo", ["uldp_avg", "uldp_sgd"])
def test_no_user_moves_the_sum_by_more_than_the_bound_of_its_group(algo):
    exp = world("preset.local_epochs=3", "preset.batch_size=4", algo=algo)
    groups = membership(exp.algo.contributors.groups, USERS)
    names = [group.name for group in exp.algo.contributors.groups]
    whole = total(exp, "update", noisy=False)
    most = dict.fromkeys(names, 0.0)
    file = File.of(exp)
    for user, rows in enumerate(file.units("user")):
        moved = np.linalg.norm(whole - total(file.without(rows), "update", noisy=False))
        most[names[groups[user]]] = max(most[names[groups[user]]], float(moved))
    for name, bound in clips(exp).items():
        assert 0.05 * bound < most[name] <= bound * (1 + 1e-9)


@pytest.mark.parametrize("aggregation", ["plain", "secagg", "private_weighting"])
def test_system_noise_and_every_protocol_keep_the_budgets(aggregation):
    """Rounding to the grid of messages moves a sum too."""
    algo = "uldp_avg_w" if aggregation == "private_weighting" else "uldp_avg"
    found = rows(world(f"aggregation={aggregation}", "randomness=system", algo=algo))
    for group, epsilon in EPSILONS.items():
        assert 0.99 * epsilon < found["released model", group] <= epsilon


def test_weights_from_counts_are_certified_where_nobody_sees_the_counts():
    found = rows(world("aggregation=private_weighting", algo="uldp_avg_w"))
    for group, epsilon in EPSILONS.items():  # rounding costs a part of each budget
        assert 0.999 * epsilon < found["server", group] <= epsilon
    found = rows(world(algo="uldp_avg_w"))
    assert math.isinf(found["server", "strict"])
    assert found["released model", "strict"] <= 0.5


ENDS = "{early:{epsilon:1,share:0.5,rounds:3},late:{epsilon:1,share:0.5}}"


def test_a_group_that_stops_early_spends_its_budget_on_its_own_rounds():
    exp = world(budgets=ENDS)
    noise, bounds = deviation(exp), clips(exp)
    assert bounds["early"] > 1.3 * bounds["late"]
    forecast = EpsilonForecast.of(exp)
    for until in (2, 3, 4, ROUNDS):
        found = {
            row.group: row.certified
            for row in forecast.rows_at([until])
            if (row.observer, row.method) == ("released model", "pld")
        }
        for group, own in (("early", min(3, until)), ("late", until)):
            spent = dp.get_epsilon_gaussian(noise / bounds[group] / math.sqrt(own), DELTA)
            assert found[group] == pytest.approx(spent, abs=1e-6)
            assert found[group] <= 1.0


@pytest.mark.parametrize("algo", ["uldp_avg", "uldp_sgd"])
def test_nobody_of_a_group_that_has_stopped_moves_a_sum(algo):
    exp = world("rounds=5", budgets=ENDS, algo=algo)
    early = membership(exp.algo.contributors.groups, USERS) == 0
    file = File.of(exp)
    for number, moves in ((3, True), (4, False)):
        whole = total(exp, "update", noisy=False, round=number)
        for user, rows in enumerate(file.units("user")):
            without = total(file.without(rows), "update", noisy=False, round=number)
            moved = np.linalg.norm(whole - without)
            assert (moved > 0.01 * CLIP) if moves or not early[user] else moved == 0.0


@pytest.mark.parametrize(("budgets", "number"), [(BUDGETS, 1), (ENDS, 4)])
def test_the_server_divides_by_the_users_who_take_part_counted_by_their_bounds(budgets, number):
    exp = world("rounds=5", budgets=budgets)
    bounds = exp.algo.contributors.bounds(exp.federation, number)
    assert np.count_nonzero(bounds) == (USERS if number == 1 else USERS / 2)
    with prepare(exp) as prepared:
        state, [query] = prepared.state, prepared.queries(number)
        result = prepared.run_round((query,), state)
    whole = total(exp, "update", noisy=True, round=number, state=state)
    step = exp.algo.global_lr / (bounds.sum() * SILOS) * whole
    assert np.allclose(result.state.params - state.params, step, rtol=1e-12, atol=0)
    assert step.any()


def ignoring_groups(monkeypatch):
    bounded = bounding.bounded_rows
    for module in (bounding, one_row):
        monkeypatch.setattr(
            module, "bounded_rows", lambda block, query, _: bounded(block, query, None)
        )


def test_a_bound_that_ignores_groups_is_caught(monkeypatch):
    exp = world("preset.n_users=6", "rounds=2", budgets=TWO, algo="uldp_sgd")
    ignoring_groups(monkeypatch)
    found = {row.group: row for row in audit(exp, Effort(1e9, 20)) if row.observer == "server"}
    assert found["strict"].alarm
    assert not found["open"].alarm  # its bound is that of the mechanism


@pytest.mark.slow
def test_the_checks_of_methods_find_a_bound_that_ignores_groups(monkeypatch):
    exp = world("preset.n_users=6", "rounds=2", budgets=TWO, algo="uldp_sgd")
    checked = " ".join(check_algorithm(exp.algo, "preset.n_users=6").checked)
    assert "strict" in checked
    assert "open" in checked
    ignoring_groups(monkeypatch)
    with pytest.raises(ConformanceError, match=r"strict|user"):
        check_algorithm(exp.algo, "preset.n_users=6")


@pytest.mark.parametrize(
    ("budgets", "text"),
    [
        ("{}", "algo.budgets"),
        ("{a:{epsilon:1}}", "algo.budgets.a=...: one of share, users and file"),
        ("{a:{epsilon:1,share:1,users:[0]}}", "one of share, users and file"),
        ("{a:{epsilon:0,share:1}}", "algo.budgets.a.epsilon=0.0: a positive number"),
        ("{a:{share:1}}", r"algo.budgets.a.epsilon=\?: a value is required"),
        ("{a:{epsilon:1,shares:1}}", "algo.budgets.a.shares.*did you mean"),
        ("{a:{epsilon:1,share:0.7}}", "shares that add up to 1"),
        ("{a:{epsilon:1,users:[1,1]}}", "algo.budgets.a.users=1: numbers from 0, each in one"),
        ("{a:{epsilon:1,users:[12]}}", "algo.budgets.a.users=12: users from 0 to 11"),
        ("{a:{epsilon:1,users:[0]}}", "11 users left"),
        ("{a:{epsilon:1,share:1,rounds:1}}", "left out for one group, which takes part to the end"),
        ("{a:{epsilon:1,share:1},b:{epsilon:1,users:[0],rounds:2}}", "b.rounds=2: 1 to 1, before"),
        ("{a:3}", "algo.budgets.a=3"),
        ("7", "algo.budgets=7"),
    ],
)
def test_budgets_that_no_groups_can_have_are_refused_in_one_line(budgets, text):
    with pytest.raises(ConfigError, match=text):
        experiment("algo=uldp_avg", *SIZES, "algo.rounds=2", f"algo.budgets={budgets}")


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["algo=fedavg"], "algo.budgets"),
        (["algo=uldp_naive"], "algo.budgets"),
        (["algo=uldp_avg"], "algo.rounds=null: a number of rounds"),
        ([*BUDGETED, "mechanism=none"], "mechanism=none"),
        ([*BUDGETED, "aggregation=shuffle", "mechanism=binomial"], "aggregation"),
        ([*BUDGETED, "accountant.budget=3"], "accountant.budget=3"),
    ],
)
def test_budgets_are_refused_where_nothing_follows_from_them(words, text):
    with pytest.raises(FedprivError, match=text):
        experiment(*words, "algo.budgets={a:{epsilon:1,share:1}}")


def test_a_run_ends_when_the_first_budget_is_spent(tmp_path):
    exp = world("algo.rounds=2", "preset.local_epochs=1")
    train(exp, "", tmp_path / "run", quiet=True)
    status = json.loads((tmp_path / "run/status.json").read_text())
    assert status["reason"] == "round 3 would exceed algo.budgets.strict.epsilon=0.5"
    table = pd.read_csv(tmp_path / "run/epsilon.csv")
    assert table["round"].max() == 2
    last = table[(table["round"] == 2) & (table["observer"] == "released model")]
    spent = last.groupby("group")["certified"].min()
    assert spent.to_dict() == pytest.approx(EPSILONS, abs=1e-6)
    assert user_epsilons(table, "released model").iloc[-1]["certified"] == spent.max()


def group_event(group, noise, **changes):
    event = dp.GaussianDpEvent(noise)
    return Event("server", "user", ADD_REMOVE, event, None, group=group, **changes)


def test_events_without_a_group_concern_every_group():
    ledger = Ledger(Rdp())
    ledger.record([group_event("a", 4.0), group_event("b", 8.0), group_event("", 6.0)])

    def alone(*noises):
        one = Ledger(Rdp())
        one.record([group_event("", noise) for noise in noises])
        return headline(one.rows(1), "server")

    found = headlines(ledger.rows(1), "server")
    assert found == {"a": alone(4.0, 6.0), "b": alone(8.0, 6.0)}
    assert headline(ledger.rows(1), "server") == found["a"]


# -- groups by a column ----------------------------------------------------------------------------


@pytest.fixture
def column(tmp_path):
    """A public file: user 3k is strict, the others are open; with a column that nobody reads."""
    path = tmp_path / "groups.csv"
    lines = [f"{user},clinic,{'open' if user % 3 else 'strict'}" for user in reversed(range(USERS))]
    path.write_text("\n".join(["user,place,group", *lines]))
    return path


def by_column(path):
    return f"{{strict:{{epsilon:0.5,file:{path}}},open:{{epsilon:4,file:{path}}}}}"


def test_a_column_of_a_public_file_says_who_is_in_which_group(column):
    listed = "{strict:{epsilon:0.5,users:[0,3,6,9]},open:{epsilon:4,share:1}}"
    exp, other = world(budgets=by_column(column)), world(budgets=listed)
    bounds = exp.algo.contributors.bounds(exp.federation, 1)
    assert np.flatnonzero(bounds < 1).tolist() == [0, 3, 6, 9]
    np.testing.assert_array_equal(bounds, other.algo.contributors.bounds(other.federation, 1))
    assert rows(exp) == rows(other)


def test_a_run_is_not_continued_with_other_groups(column, tmp_path):
    """The path in the settings is the same; the users are not."""
    listed_groups.cache_clear()
    exp = world("quiet=true", "device=cpu", budgets=by_column(column))
    before = digest_plan(exp, exp.planner.plan(exp.federation))
    text = column.read_text()
    column.write_text(text.replace("1,clinic,open", "1,clinic,strict"))
    assert digest_plan(exp, exp.planner.plan(exp.federation)) == before  # read once a process
    listed_groups.cache_clear()
    again = world("quiet=true", "device=cpu", budgets=by_column(column))
    assert digest_plan(again, again.planner.plan(again.federation)) != before


@pytest.mark.parametrize(
    ("lines", "says"),
    [
        (None, "a CSV file that can be read"),
        ("", "one column 'user'"),
        ("user,place\n0,a", "one column 'group'"),
        ("user,user,group\n0,1,strict", "one column 'user'"),
        ("user,group\n0,strict\n0,open", "line 3=0: numbers of users from 0, each once"),
        ("user,group\n-1,strict", "line 2=-1: numbers"),
        ("user,group\n0.5,strict", "line 2"),
        ("user,group\n٣,strict", "line 2"),
        ("user,group\n0,", "line 2=no group"),
        ("user,group\n0", "line 2=no group"),
        ("user,group\n0,open", "users of group strict; it has open"),
        ("user,group\n0,strict\n99,open", "users from 0 to 11"),
        ("user,group\n0,strict\n1,open", "10 users left"),
        ('user,group\n"0,strict', "can be read"),
    ],
)
def test_a_file_of_groups_that_says_too_little_is_refused_in_one_line(lines, says, tmp_path):
    path = tmp_path / "groups.csv"
    if lines is not None:
        path.write_text(lines, encoding="utf-8")
    with pytest.raises(ConfigError, match=says) as error:
        world(budgets=by_column(path))
    assert "\n" not in str(error.value)
