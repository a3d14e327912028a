"""Private statistics: what a user moves, what it costs, and what the numbers are worth."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from dp_accounting import NonPrivateDpEvent
from dp_accounting.pld.privacy_loss_mechanism import GaussianPrivacyLoss

from fedpriv.accountants.events import RELEASED_MODEL
from fedpriv.algorithms.statistics import STATISTICS
from fedpriv.errors import ConfigError, FedprivError
from fedpriv.mechanisms.gaussian import NORMAL
from fedpriv.mechanisms.laplace import Laplace
from fedpriv.runs.analyse_command import Request
from fedpriv.runs.epsilon_forecast import EpsilonForecast
from fedpriv.runs.noise_choice import laplace_is_less
from fedpriv.runtime import prepare
from fedpriv.testing.experiments import experiment
from fedpriv.testing.sensitivity import distances

ALL = "statistics=count,mean,quantiles,histogram"
COLUMNS = ("bounds.age=[0,110]", "bounds.bp=[60,220]", "categories.sex=[d,f,m]")
SILOS = ("data.silo=hospital", "silos=a,b,c")
BY_HOSPITAL = (*SILOS, "data.user_scope=silo")
PLACES = {  # what else is said about users and silos, and by how much sums are multiplied
    "one silo": ((), 1),
    "dealt": (("allocator=by_user", "allocator.n_silos=3"), 1),
    "of one hospital each": (BY_HOSPITAL, 1),
    "of several hospitals": ((*SILOS, "algo.weighting=uniform"), 3),
    "rows are persons": (("data.one_row_per_user=true",), 1),
}

SOME = [PLACES["dealt"], PLACES["of several hospitals"]]


def rows_of(rng, users=12, *, most=4):
    """Rows of users, some in several hospitals, with values beyond their bounds and missing. The
    first has the highest age, and a category of their own."""
    rows = []
    for user in range(users):
        for _ in range(rng.integers(1, most + 1)):
            age = rng.choice(["", -5, 0, 90, round(float(rng.uniform(0, 90)), 2)])
            bp = rng.choice(["", 60, 219.99, round(float(rng.normal(130, 40)), 1)])
            age, sex = (age, rng.choice(["f", "m"])) if user else (200, "d")
            rows.append((f"u{user}", rng.choice(["a", "b", "c"]), age, bp, sex))
    others = [(f"z{number}", "abc"[number % 3], 50, 130, "f") for number in range(12)]
    return [*rows, *others]  # no silo is empty


def write(path, rows):
    lines = ["patient,hospital,age,bp,sex", *(",".join(map(str, row)) for row in rows)]
    path.write_text("\n".join(lines) + "\n")
    return path


def settings(path, *words):
    """The settings that the command composes from its words."""
    owner = () if "data.one_row_per_user=true" in words else ("data.user=patient",)
    ways = "" if any(word.startswith("target=") for word in words) else "algo.noise_multiplier=0"
    given = [f"data.path={path}", "data.users=60", *owner, *COLUMNS, ALL, *words]
    given += [ways] if ways else []
    randomness = () if any("randomness" in word for word in words) else ("randomness=simulation",)
    return Request.parse([*given, *randomness]).settings


def released(path, *words):
    """The sums that an analysis of a table gives to the noise, which is zero here."""
    exp = experiment(*settings(path, *words))
    with prepare(exp) as run:
        result = run.run_round(run.queries(1), run.state)
    return result.state.params


LAPLACE = ("mechanism=laplace",)


@pytest.mark.parametrize(("name", "norm"), [*((name, 2) for name in PLACES), ("dealt", 1)])
def test_a_user_moves_the_sums_by_the_own_vector_and_at_most_the_bound(name, norm, tmp_path):
    words, factor = PLACES[name]
    words += LAPLACE if norm == 1 else ()
    ratios, rng = [], np.random.default_rng(0)
    rows = rows_of(rng, most=1 if name == "rows are persons" else 4)
    whole = released(write(tmp_path / "t.csv", rows), *words)
    nobody = [row for row in rows if row[0][0] == "z"]
    without = released(write(tmp_path / "t.csv", nobody), *words)
    who = {
        (row[0], row[1] if PLACES[name][0] == BY_HOSPITAL else "")
        for row in rows
        if row[0][0] != "z"
    }
    for user, hospital in sorted(who)[::3]:
        others = [row for row in rows if row[0] != user or hospital not in ("", row[1])]
        less = released(write(tmp_path / "t.csv", others), *words)
        own = [row for row in rows if row not in others]
        alone = released(write(tmp_path / "t.csv", [*own, *nobody]), *words) - without
        # Nothing of anybody else depends on who is in the file.
        assert whole - less == pytest.approx(alone, abs=1e-6)
        ratios.append(float(np.linalg.norm(whole - less, norm)) / factor)
    assert max(ratios) <= 1 + 1e-12
    assert max(ratios) > (0.2 if factor > 1 else 0.6)  # a user is there, and is not cut


NEIGHBOURS = [
    ("of one hospital each", ()),
    ("of several hospitals", LAPLACE),
]


@pytest.mark.parametrize(("name", "noise"), NEIGHBOURS)
def test_no_neighbour_moves_more_than_is_charged(name, noise, tmp_path):
    path = write(tmp_path / "t.csv", rows_of(np.random.default_rng(7)))
    exp = experiment(*settings(path, "target=2", *PLACES[name][0], *noise))
    found = distances(exp, users=4, records=3)
    assert [one.certified for one in found] == [True] * len(found)
    assert all(one.ratio <= 1 + 1e-9 for one in found)
    assert found[0].ratio > 0.2


def test_epsilons_are_those_of_one_gaussian():
    exps = [experiment(*settings("none.csv", *place, "accountant=pld")) for place, _ in SOME]
    rng = np.random.default_rng(11)
    for number in range(12):
        noise = round(float(rng.uniform(0.6, 12)), 3)
        chosen = rng.permutation(list(STATISTICS))[: rng.integers(1, 5)].tolist()
        exp = exps[number % len(exps)]
        algo = replace(exp.algo, statistics=chosen, noise_multiplier=noise)
        exp = replace(exp, algo=algo, mechanism=exp.mechanism.with_noise(noise))
        rows = EpsilonForecast.of(exp).rows
        [epsilon] = {row.certified for row in rows if row.observer == RELEASED_MODEL}
        delta = GaussianPrivacyLoss(noise).get_delta_for_epsilon(epsilon)  # closed form
        assert 1e-5 * (1 - 5e-3) <= delta <= 1e-5 * (1 + 1e-6)


def test_a_weight_of_one_needs_users_of_one_silo(tmp_path):
    exp = experiment(*settings("none.csv", "target=2", *PLACES["of one hospital each"][0]))
    plan = exp.planner.plan(exp.federation)
    several = replace(plan, federation=replace(plan.federation, one_silo_each=False))
    for known, private in ((plan, True), (several, False)):
        [query] = exp.algo.queries(1, known)
        own = [event for event in query.events if event.observer == RELEASED_MODEL]
        assert [one.certified != NonPrivateDpEvent() for one in own] == [private]


SUMS = ("aggregation=plain", "aggregation=masked")


@pytest.mark.parametrize("summed", SUMS)
@pytest.mark.parametrize("name", ["of one hospital each", "of several hospitals", "one silo"])
def test_laplace_noise_of_one_silo_hides_a_user_from_everybody_who_does_not_know_it(name, summed):
    """Also where each message is seen, and a user has records in several silos."""
    words = ("accountant=pld", "target=0.5", *PLACES[name][0], *LAPLACE)
    silos = (summed,) if name != "one silo" else ()
    rows = EpsilonForecast.of(experiment(*settings("none.csv", *words, *silos))).rows
    for row in rows:
        assert row.certified == pytest.approx(0.5, rel=1e-4)
        assert row.certified <= 0.5
    peers = set() if name == "one silo" else {"silo"}  # a single one holds all records
    assert {RELEASED_MODEL, "server", *peers} <= {row.observer for row in rows}


CHOSEN = [  # statistics, silos and target, and whether they have Laplace noise
    (("statistics=count",), True),
    (("statistics=mean", "columns=age"), True),
    (("statistics=count,mean,histogram", "columns=age"), True),
    (("statistics=mean,histogram",), True),  # five parts
    (("statistics=count,mean,histogram",), False),  # six
    (("statistics=quantiles", "columns=age"), False),
    (("statistics=count", *BY_HOSPITAL), True),
    (("statistics=mean", "columns=age,bp", *BY_HOSPITAL), False),  # two parts, three noises
    (("statistics=count", "target=20"), True),
    (("statistics=count", "mechanism=laplace"), False),  # it is named
    (("statistics=count", "algo.noise_multiplier=2"), False),
    (("statistics=count", "ledger=l.jsonl", "population=p", "randomness=system"), False),
    (("statistics=count", *BY_HOSPITAL, "aggregation=secagg_exact_noise"), False),
]


@pytest.mark.parametrize(("words", "laplace"), CHOSEN)
def test_laplace_noise_is_chosen_where_it_reaches_less_far(words, laplace):
    given = any("target" in word or "noise_multiplier" in word for word in words)
    made = settings("none.csv", *words, *(() if given else ("target=1",)))
    made = [word for word in made if given or word != "algo.noise_multiplier=0"]
    exp = experiment(*made)
    assert laplace_is_less(exp, [word.partition("=")[0] for word in words]) is laplace
    if "ledger=l.jsonl" in words or not laplace:
        return
    other = experiment(*made, *LAPLACE)
    reached = [
        one.planner.plan(one.federation).mechanism.spread(one.allocator.n_silos)
        / one.algo.share(one.planner.plan(one.federation).mechanism)
        for one in (exp, other)
    ]
    assert reached[1] < reached[0]


def truths(x, algo):
    """What the estimates are of, for one value a user (n,), from 0 to 110."""
    ordered = np.sort(x)
    edges = np.linspace(0, 110, algo.bins + 1)
    yield float(len(x))
    yield from (x.mean(), x.std())
    yield from (ordered[math.ceil(share * len(x)) - 1] for share in algo.quantiles)
    yield from np.histogram(x, edges)[0].astype(float)


def gaussian_noise(rng, size):
    return rng.normal(scale=7.0, size=size)


def laplace_noise(rng, size):
    """Of two silos, in the deviation of the Gaussian."""
    return rng.laplace(scale=3.5, size=(2, size)).sum(axis=0)


NOISES = [(gaussian_noise, NORMAL * 7.0), (laplace_noise, Laplace(1.0, 3.5).spread(2))]


@pytest.mark.parametrize(("noise", "reach"), NOISES)
def test_intervals_cover_and_exact_sums_give_exact_numbers(noise, reach, tmp_path):
    words = [word for word in settings("none.csv") if not word.startswith("data.columns")]
    algo = experiment(*words, "data.columns=[[age,0,110]]", "algo.steps=64").algo
    rng = np.random.default_rng(3)
    x = np.clip(rng.gamma(6, 9, size=400), 0, 109.99)
    true = np.array(list(truths(x, algo)))
    sums = algo.vectors((x / 110)[:, None], np.arange(401)).sum(axis=0)

    def found(noisy, reach):
        parts = (one.part.estimates(noisy[one.here], reach) for one in algo.placed)
        return np.array([one[2:] for part in parts for one in part])

    exact = found(sums, 0.0)
    assert exact[0, 0] == pytest.approx(400)
    assert exact[1:3, 0] == pytest.approx(true[1:3], rel=1e-9)
    assert np.abs(exact[3:6, 0] - true[3:6]).max() <= 110 / 64  # a step
    assert exact[6:, 0] == pytest.approx(true[6:], abs=1e-9)
    runs = 300
    covered = np.zeros(len(true))
    for _ in range(runs):
        numbers = found(sums + noise(rng, len(sums)), reach)
        covered += (numbers[:, 1] <= true) & (true <= numbers[:, 2])
    least = 0.95 - 3 * math.sqrt(0.95 * 0.05 / runs)
    assert (covered / runs >= least).all()
    assert covered[0] / runs < 0.99  # nor are intervals wider than they say
    assert covered[1] / runs < 0.99


WIDE = [  # ln 20 scales of one Laplace number; those of three are less than sqrt(3) times as far
    ((), NORMAL * 3.73067),
    (LAPLACE, math.log(20) * 0.99999),
    ((*LAPLACE, "allocator=by_user", "allocator.n_silos=3"), math.log(20) * 3**0.5 * 0.99999),
]


@pytest.mark.parametrize(("words", "reach"), WIDE)
def test_noise_of_a_run_is_what_intervals_take_for_granted(words, reach, tmp_path):
    path = write(tmp_path / "t.csv", [(f"u{i}", "a", 50, 130, "f") for i in range(40)])
    exp = experiment(*settings(path, "statistics=count", "target=1", *words))
    inside = []
    for seed in range(30):
        exp = replace(exp, options=replace(exp.options, seed=seed))
        with prepare(exp) as run:
            [row] = exp.algo.table(run.run_round(run.queries(1), run.state).state, run.plan)
        inside.append(row["low"] <= 40 <= row["high"])
        assert row["high"] - row["low"] == pytest.approx(2 * reach, rel=1e-5)
    assert sum(inside) >= 25  # of 28.5 expected; fewer once in 300 times, and seeds are fixed


def test_users_weigh_alike_however_many_rows_they_have(tmp_path):
    rows = [("u1", "a", 10, "", "f")] * 9 + [("u2", "a", 90, "", "m"), ("u2", "b", "", 100, "m")]
    exp = experiment(*settings(write(tmp_path / "t.csv", rows), "statistics=mean,histogram"))
    with prepare(exp) as run:
        table = exp.algo.table(run.run_round(run.queries(1), run.state).state, run.plan)
    values = {(row["column"], row["statistic"], row["of"]): row["value"] for row in table}
    assert values["age", "mean", ""] == pytest.approx(50)
    assert values["age", "deviation", ""] == pytest.approx(40)
    assert values["bp", "mean", ""] == pytest.approx(100)  # of the only user with a value
    assert values["sex", "histogram", "m"] == pytest.approx(1)


NOTED = {
    "categories.sex=[women,men]": "column sex: 2 values are not in the public list (women, men)",
    "bounds.age=[0,1]": "column age: 2 values are outside 0 to 1",
}


@pytest.mark.parametrize(("word", "note"), NOTED.items(), ids=NOTED)
def test_values_that_no_statistic_counts_as_they_are_are_noted(word, note, tmp_path):
    rows = [("u1", "a", 10, 90, "f"), ("u2", "a", -1, 90, "m"), ("u3", "a", 1, 90, "")]
    exp = experiment(*settings(write(tmp_path / "t.csv", rows), word))
    assert note in exp.data.load(exp.streams).notes


WRITTEN = [  # a cell, and the category that it is in
    ("1.0", "[1,2]"),
    ("True", "[true,false]"),
    ('"flu, mild"', "['flu, mild',flu]"),
    ("F", "[F,f]"),
]


@pytest.mark.parametrize(("cell", "values"), WRITTEN)
def test_a_cell_is_in_its_category_however_programs_write_it(cell, values, tmp_path):
    path = write(tmp_path / "t.csv", [("u1", "a", 10, 90, cell), ("u2", "a", 10, 90, "")])
    words = (f"categories.sex={values}", "columns=sex", "statistics=histogram")
    assert released(path, *words) == pytest.approx([1.0, 0.0])


REFUSED = [
    (["columns=age,height"], "columns=height: bounds.height=[0,110] or categories.height=[a,b]"),
    (["bounds.age=[110,0]"], "bounds.age=[110,0]: two public numbers, the lower one first"),
    (["bounds.age=[0,1e13]"], "two public bounds up to"),
    (["bounds.age=[0,1,2]"], "bounds.age=[0,1,2]: two public numbers"),
    (["bounds.age=[0,old]"], "bounds.age=[0,old]: two public numbers"),
    (["rounds=2"], "rounds=2: left out: an analysis has one round"),
    (["categories.sex=[f,f]"], "data.columns="),
    (["statistics=mode"], "some of count, mean, quantiles, histogram"),
    (["statistics=mean", "columns=sex"], "histogram for categories"),
    (["quantiles=0.5,1"], "shares between 0 and 1"),
    (["algo.clip=2"], "algo.clip=2.0: 1, since no user's vector is longer"),
    (["data.silo=hospital"], "data.silos=[]: the names of all silos"),
    ([*SILOS], "algo.weighting=home: uniform, or data.user_scope=silo"),
    (["data.missing=drop"], "data.missing=drop: fill"),
    (["data.decimal=null"], "data.decimal=null"),
    (["data.user=age"], "data.user=age: none of data.columns"),
    (["data.path=away.csv"], "no such file"),
    (["data.users=3"], "users; data.users=3"),
    (["data=creditcard"], "data=creditcard: table, with data.path"),
    (["mechanism=none"], "algo.clip=inf"),
    (["mechanism=adaptive"], "mechanism=adaptive: gaussian or discrete_gaussian, or laplace"),
    (["mechanism=laplace", *BY_HOSPITAL, "aggregation=secagg_exact_noise"], "mechanism=laplace: "),
    ([*BY_HOSPITAL, "aggregation=robust"], "algo=statistics: an aggregation that sums"),
]


@pytest.mark.parametrize(("words", "line"), REFUSED, ids=lambda value: str(value)[:40])
def test_refused_in_one_line(words, line, tmp_path):
    path = write(tmp_path / "t.csv", rows_of(np.random.default_rng(1)))
    with pytest.raises(FedprivError) as refusal:
        released(path, *words)
    assert line in str(refusal.value)
    assert "\n" not in str(refusal.value)


def test_a_target_or_noise_has_to_be_given():
    words = ["data.path=t.csv", "data.user=patient", *COLUMNS]
    with pytest.raises(ConfigError, match=r"target=: the epsilon that the analysis may cost"):
        _ = Request.parse(words).settings
