"""Every observer's event, from what a method asks for."""

import math
from dataclasses import dataclass, replace

import pytest
from dp_accounting import (
    GaussianDpEvent,
    NonPrivateDpEvent,
    PoissonSampledDpEvent,
    SelfComposedDpEvent,
)

from fedpriv.accountants.events import ADD_REMOVE, REPLACE
from fedpriv.algorithms.base import Algorithm
from fedpriv.certificates.derive import ROUNDED_ALIKE, plan_queries
from fedpriv.certificates.noise import (
    DpSgdNoise,
    Drift,
    NoNoise,
    OwnNoise,
    SiloNoise,
    StepNoise,
    Steps,
    SumNoise,
)
from fedpriv.certificates.request import Request, Target, turn_of
from fedpriv.certificates.sampling import OnePass, Poisson, WithoutReplacement
from fedpriv.data.stability import DRAWN_BY_PLACE, OF_EACH_USER, Stability, truncation
from fedpriv.encoding.fixed_point import FixedPoint
from fedpriv.mechanisms.gaussian import Gaussian
from fedpriv.mechanisms.none import NoMechanism
from fedpriv.rounds.contributors import (
    RecordVectors,
    RecordWeighting,
    Silos,
    UniformWeighting,
    Users,
    Weighting,
)
from fedpriv.rounds.plan import Federation, Observer, Plan, QueryParameters, ThreatModel
from fedpriv.util.streams import Streams

NOISE = 5.0
MODEL = Observer("released model", sees_sample=False)
OPEN = Observer("server", sees_messages=True)
BLIND = Observer("server", sees_counts="counts are shown")
SILO = Observer("silo", own_shares=1)
USER = Target("user", ADD_REMOVE)


def plan(*observers, mechanism=None, system=False):
    parameters = QueryParameters(mechanism or Gaussian(1.0, NOISE), 4, 4, None)
    threat_model = ThreatModel(observers or (MODEL, BLIND, SILO), ("server",), ("nobody colludes",))
    federation = Federation(10, 4, 5, silo_records=(100, 50, 40, 0))
    return Plan(federation, {"update": parameters}, threat_model, Streams(0, system=system))


def truncated(made, k):
    stability = made.federation.stability.then(truncation(k))
    return replace(made, federation=replace(made.federation, stability=stability))


def claimed(view):
    return GaussianDpEvent(7.0)


def queries(made, request, contributors, *targets, round=1):
    return plan_queries([request], made, contributors, targets, round=round, claim=claimed)


def events(made, request, contributors, *targets):
    [query] = queries(made, request, contributors, *targets)
    return {(event.observer, event.unit, event.scope): event for event in query.events}


def multipliers(found):
    return {key[0]: event.certified.noise_multiplier for key, event in found.items()}


@dataclass(frozen=True)
class Unequal(Weighting):
    """0.7 in the first silo, 0.1 in the others."""

    def weights(self, counts):
        raise NotImplementedError

    def spread(self, n_silos):
        return n_silos * (0.7**2 + 3 * 0.1**2)


RECORD = Target("record", REPLACE)
TWICE = SumNoise(lambda n_summed: 2.0 * n_summed)
MULTIPLIERS = {
    "a silo knows a share": (plan(), SumNoise(), Users(), USER, (1, 1, math.sqrt(3 / 4))),
    # Message s moves by w_s under a quarter of the variance: sum of w_s^2 * 4 over sigma^2.
    "single messages of unequal weights tell more than their sum": (
        *(plan(MODEL, OPEN), SumNoise(), Users(Unequal()), USER),
        (1, 1 / math.sqrt(4 * 0.52)),
    ),
    "equal weights": (plan(MODEL, OPEN), SumNoise(), Users(UniformWeighting()), USER, (1, 1)),
    "a silo's vector moves by two bounds in every silo": (
        *(plan(MODEL), SumNoise(), Silos(), USER),
        (1 / 8,),
    ),
    "noise for two bounds a silo": (plan(MODEL), TWICE, Silos(), USER, (1,)),
    "a replaced user": (plan(MODEL), SumNoise(), Users(), Target("user", REPLACE), (1 / 2,)),
    "a replaced record": (plan(MODEL), SumNoise(), RecordVectors(), RECORD, (1 / 2,)),
    # Only the record's own silo hides it, by a quarter of the variance.
    "a record among silos that collude": (
        *(plan(replace(SILO, own_shares=3)), SumNoise(), RecordVectors(), RECORD),
        (1 / 2 / 2,),
    ),
    # Its user's vector moves from one end of the ball to the other, sampled or not.
    "a record that leaves a user with others": (
        *(plan(MODEL), SumNoise(), Users(), Target("record", ADD_REMOVE)),
        (1 / 2,),
    ),
    "one that leaves a sampled user with others": (
        *(plan(MODEL), SumNoise(), Users(rate=0.1), Target("record", ADD_REMOVE)),
        (1 / 2,),
    ),
    "a replaced record of a sampled user": (
        *(plan(MODEL), SumNoise(), Users(rate=0.1), RECORD),
        (1 / 2,),
    ),
}


@pytest.mark.parametrize("case", MULTIPLIERS)
def test_each_observer_faces_the_noise_that_it_does_not_know(case):
    made, noise, contributors, target, expected = MULTIPLIERS[case]
    found = multipliers(events(made, Request(noise), contributors, target))
    names = [observer.name for observer in made.threat_model.observers]
    assert found == pytest.approx({n: NOISE * factor for n, factor in zip(names, expected)})


def test_counts_that_reach_an_observer_end_its_certificate_only_where_weights_depend_on_them():
    weighted = events(plan(), Request(SumNoise()), Users(RecordWeighting()), USER)
    assert weighted["server", "user", ""].certified == NonPrivateDpEvent()
    assert weighted["server", "user", ""].assumptions[-1] == "FAILS: counts are shown"
    assert weighted["released model", "user", ""].certified == GaussianDpEvent(NOISE)
    uniform = events(plan(), Request(SumNoise()), Users(), USER)
    assert uniform["server", "user", ""].certified == GaussianDpEvent(NOISE)


def test_sampled_users_are_hidden_from_who_does_not_see_the_sample():
    [query] = queries(plan(MODEL, OPEN), Request(SumNoise()), Users(rate=0.3), USER)
    certified = {event.observer: event.certified for event in query.events}
    assert certified["released model"] == PoissonSampledDpEvent(0.3, GaussianDpEvent(NOISE))
    assert certified["server"] == GaussianDpEvent(NOISE)
    assert query.user_rate == 0.3
    assert query.sampled.shape == (10,)
    [hidden] = queries(plan(MODEL), Request(SumNoise()), Users(rate=0.3), USER)
    assert hidden.sampled is None  # the parties draw


def test_noise_is_sized_for_what_the_method_says():
    [query] = queries(plan(MODEL), Request(TWICE), Silos(), USER)
    assert query.sensitivity == 8


def test_a_record_is_in_one_silo_and_silos_without_records_have_no_event():
    found = events(plan(MODEL), Request(SumNoise()), RecordVectors(), Target("record", ADD_REMOVE))
    assert [scope for _, _, scope in found] == ["silo0", "silo1", "silo2"]


def test_a_batch_of_a_record_is_sampled_and_a_group_of_a_fixed_size_batch_is_not():
    def size(records):
        return records // 5

    k = Target("user", REPLACE, 3)
    drawn = Request(SumNoise(), batches=WithoutReplacement(), batch_size=size)
    made = truncated(plan(MODEL), 3)
    found = events(made, drawn, RecordVectors(), Target("record", REPLACE), k)
    record = found["released model", "record", "silo0"].certified
    assert (record.source_dataset_size, record.sample_size) == (100, 20)
    assert record.event == GaussianDpEvent(NOISE / 2)
    user = found["released model", "user", "silo0"]
    assert user.certified == GaussianDpEvent(NOISE / 2)
    assert user.group_size == 3
    coins = Request(SumNoise(), batches=Poisson(), batch_size=size)
    poisson = events(plan(MODEL), coins, RecordVectors(), Target("record", ADD_REMOVE))
    assert poisson["released model", "record", "silo0"].certified == PoissonSampledDpEvent(
        0.2, GaussianDpEvent(NOISE)
    )


def test_one_pass_has_a_scope_for_each_batch():
    request = Request(SiloNoise(), batches=OnePass(4), batch_size=lambda records: 10)
    [query] = queries(plan(MODEL), request, Silos(), Target("record", REPLACE), round=3)
    assert {event.scope for event in query.events} == {f"silo{i}/batch3" for i in range(3)}


def test_single_messages_meet_one_silos_noise_and_sums_the_least_of_the_others():
    request = Request(SiloNoise(), batches=WithoutReplacement(), batch_size=lambda records: records)
    whole = 1 + (50 / 100) ** 2
    request = replace(request, invited=(0, 1), n_summed=2)
    found = events(plan(MODEL, OPEN, SILO), request, Silos(), Target("record", REPLACE))
    small = {key[0]: e for key, e in found.items() if key[2] == "silo1"}
    assert small["server"].certified == GaussianDpEvent(NOISE / 2)
    assert small["silo"].certified == GaussianDpEvent(NOISE / 2)
    large = {key[0]: e for key, e in found.items() if key[2] == "silo0"}
    assert large["released model"].certified.noise_multiplier == pytest.approx(
        NOISE * math.sqrt(1 + (100 / 50) ** 2) / 2
    )
    assert small["released model"].certified.noise_multiplier == pytest.approx(
        NOISE * math.sqrt(whole) / 2
    )


@pytest.mark.parametrize(
    ("factor", "observer", "expected"),
    [
        (1.0, MODEL, 4 * 2 / 10 / 2),  # four steps under the last noise of four silos
        (1.0, OPEN, 2 * 2 / 10),  # the root of four noisy steps
        (math.inf, MODEL, 2 * 2 / 10),
        (1.5, SILO, 2 * 2 / 10),  # 1.5 * 0.8 / sqrt(3) > 0.4
    ],
)
def test_noisy_steps_take_the_better_of_two_bounds(factor, observer, expected):
    noise = StepNoise(lambda records: Steps(4, 2.0, 10, 1.0, 1.0, 1.0), Drift(factor, "because"))
    found = events(plan(observer), Request(noise), Silos(), Target("record", REPLACE))
    assert len(found) == 3
    for event in found.values():
        assert event.certified.noise_multiplier == pytest.approx(NOISE / expected)


def test_dp_sgd_shows_everybody_the_same():
    noise = DpSgdNoise(lambda records: (records // 10, 0.1))
    made = truncated(plan(OPEN, SILO), 8)
    found = events(made, Request(noise), Silos(), Target("user", ADD_REMOVE, 8))
    step = PoissonSampledDpEvent(0.1, GaussianDpEvent(NOISE))
    for observer in ("server", "silo"):
        event = found[observer, "user", "silo1"]
        assert event.certified == SelfComposedDpEvent(step, 5)
        assert event.group_size == 8


def test_all_records_of_a_users_draws_are_the_group():
    """A user keeps four records in two draws of two: all four may differ."""
    made = truncated(plan(MODEL), 4)
    made = replace(made, federation=replace(made.federation, records_per_draw=2))
    request = Request(DpSgdNoise(lambda records: (records // 10, 0.1)))
    found = events(made, request, Silos(), Target("user", ADD_REMOVE, 2))
    assert {event.group_size for event in found.values()} == {4}
    assert not _fails(found, "user")


@pytest.mark.parametrize("turns", [2, 3])
def test_a_user_in_turn_is_charged_for_one_message_in_its_own_rounds_only(turns):
    made = plan(MODEL)
    encoding = FixedPoint(32, 128.0, 4)
    parameters = replace(made.parameters, encoding=encoding)
    made = replace(made, query_parameters={"update": parameters})
    request = Request(SumNoise())
    [always] = queries(made, request, Users(), USER)[0].events
    moved = 1 + encoding.shift(5)  # rounding adds to the sensitivity once
    assert always.certified.noise_multiplier == pytest.approx(NOISE / moved, rel=1e-12)
    for round in range(1, 2 * turns + 1):
        [query] = queries(made, request, Users(turns=turns), USER, round=round)
        [event] = query.events
        assert turn_of(event.scope) == (round - 1) % turns
        assert event.certified == always.certified


@pytest.mark.parametrize(
    ("observer", "unit", "why"),
    [
        (replace(SILO, why_uncertified="its key is short"), USER, "its key is short"),
        (SILO, replace(USER, fails="k is private"), "k is private"),
    ],
)
def test_what_fails_is_said_and_certifies_nothing(observer, unit, why):
    [event] = events(plan(observer), Request(SumNoise()), Users(), unit).values()
    assert event.certified == NonPrivateDpEvent()
    assert event.assumptions[-1] == f"FAILS: {why}"


def test_without_noise_nothing_is_certified():
    [quiet] = events(
        plan(MODEL, mechanism=NoMechanism()), Request(NoNoise()), Silos(), USER
    ).values()
    assert quiet.certified == NonPrivateDpEvent()


def test_assumptions_of_all_who_have_some_are_in_every_event():
    request = Request(SumNoise(), assumptions=("asked",))
    unit = replace(USER, assumptions=("of the unit",))
    for event in events(plan(), request, Users(), unit).values():
        assert event.assumptions[:3] == (
            "Gaussian noise drawn in floating point",
            ROUNDED_ALIKE,
            "nobody colludes",
        )
        assert {"asked", "of the unit"} <= set(event.assumptions)
        assert event.claimed == GaussianDpEvent(7.0)
    system = events(plan(system=True), request, Users(), unit)
    assert all(e.assumptions[0] == "integer noise, exactly sampled" for e in system.values())
    # There each user trains alone; and if one comes for another, there are as many rows.
    replaced = events(plan(), request, Users(), Target("user", REPLACE))
    assert all(ROUNDED_ALIKE not in e.assumptions for e in (*system.values(), *replaced.values()))


class Author:
    """A method of another package."""


@pytest.mark.parametrize(
    ("noise", "authors"), [(SumNoise(), ()), (NoNoise(), ()), (OwnNoise(), ("Author",))]
)
def test_an_event_names_the_author_who_noises(noise, authors):
    requests = [Request(noise)]
    [query] = plan_queries(
        requests, plan(), Users(), [USER], round=4, claim=claimed, author=Author(), trains=False
    )
    assert {event.authors for event in query.events} == {authors}


def test_a_query_takes_the_numbers_of_its_channel():
    [query] = queries(plan(), Request(SumNoise()), Users(), USER, round=4)
    assert (query.round, query.invited, query.n_summed, query.size) == (4, (0, 1, 2, 3), 4, 5)
    assert query.stream("noise") == "noise"
    made = plan()
    made = replace(made, query_parameters={**made.query_parameters, "other": made.parameters})
    two = [Request(SumNoise()), Request(SumNoise(), name="other")]
    first, second = plan_queries(two, made, Users(), [USER], round=4, claim=claimed)
    assert second.stream("noise") == "other noise"
    assert first.serial < second.serial
    assert (query.user_rate, query.place, query.asked.stateful, query.sampled) == (
        1.0,
        0,
        False,
        None,
    )


def test_a_method_cannot_write_its_own_events():
    with pytest.raises(TypeError, match="the framework derives events"):

        class Forger(Algorithm):
            def queries(self, round, plan):
                return ()


@pytest.mark.parametrize(
    ("stages", "adjacency", "failing"),
    [
        ((), ADD_REMOVE, {"user"}),  # nothing bounds a user's records
        ((truncation(3),), ADD_REMOVE, {"record"}),  # another record comes in
        ((truncation(3),), REPLACE, set()),
        ((truncation("median"),), ADD_REMOVE, {"record", "user"}),
        ((DRAWN_BY_PLACE,), ADD_REMOVE, {"record", "user"}),
        ((OF_EACH_USER,), ADD_REMOVE, {"record", "user"}),
        ((OF_EACH_USER, truncation(3)), ADD_REMOVE, {"record"}),
        ((truncation(4),), ADD_REMOVE, {"record", "user"}),  # the method counts three
    ],
)
def test_what_happens_before_the_first_event_decides_who_has_a_certificate(
    stages, adjacency, failing
):
    made = plan(MODEL)
    stability = Stability("the loaded records", stages)
    made = replace(made, federation=replace(made.federation, stability=stability))
    found = events(
        made,
        Request(SumNoise()),
        RecordVectors(),
        Target("record", adjacency),
        Target("user", adjacency, 3),
    )
    none = {unit for _, unit, _ in found if _fails(found, unit)}
    assert none == failing
    assert all("neighbours differ in the loaded records" in e.assumptions for e in found.values())


def _fails(found, unit):
    return {e.certified == NonPrivateDpEvent() for key, e in found.items() if key[1] == unit} == {
        True
    }
