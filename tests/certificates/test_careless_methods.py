"""Methods that declare one thing and do another: refused, or without a certificate."""

import json
from dataclasses import dataclass, fields, replace

import numpy as np
import pytest
from dp_accounting import GaussianDpEvent, NonPrivateDpEvent, PoissonSampledDpEvent
from test_derive import USER, claimed, plan

from fedpriv.accountants.base import Accountant
from fedpriv.accountants.events import ADD_REMOVE, REPLACE
from fedpriv.accountants.ledger import Ledger, headline
from fedpriv.algorithms.prox_sgd import MinibatchSgd
from fedpriv.algorithms.uldp import UldpSgd
from fedpriv.certificates.derive import plan_queries
from fedpriv.certificates.noise import DpSgdNoise, NoNoise, SumNoise
from fedpriv.certificates.request import Request, Target
from fedpriv.certificates.sampling import Poisson, WithoutReplacement
from fedpriv.data.allocate import Allocator
from fedpriv.data.stability import LOADED, OWN_USERS, Stability
from fedpriv.errors import ConfigError
from fedpriv.mechanisms.gaussian import Gaussian
from fedpriv.rounds.contributors import RecordsInFull, RecordVectors, Silos, UniformWeighting, Users
from fedpriv.rounds.plan import Observer
from fedpriv.rounds.user_groups import UserGroup
from fedpriv.runs.epsilon_forecast import EpsilonForecast
from fedpriv.runs.loop import train
from fedpriv.runs.release import labels_of
from fedpriv.runtime import allocate, prepare
from fedpriv.testing import experiment
from fedpriv.training.description import Recipe
from fedpriv.training.optimizers import Sgd


def with_parameters(made, *names):
    return replace(made, query_parameters=dict.fromkeys(names, made.parameters))


def values(algo):
    """The arguments of an algorithm."""
    return {field.name: getattr(algo, field.name) for field in fields(algo)}


def sgd(cls, *words):
    """ULDP-SGD of eight users as another class has it."""
    exp = experiment("algo=uldp_sgd", "preset.n_users=8", *words)
    return replace(exp, algo=cls(**values(exp.algo)))


def asked(requests, made, contributors=None, targets=(USER,)):
    return plan_queries(requests, made, contributors or Users(), targets, round=1, claim=claimed)


def test_each_query_of_a_round_draws_its_users_afresh():
    """One sample for two queries costs more than two samples, which is what is charged."""
    made = with_parameters(plan(Observer("server")), "a", "b")
    made = replace(made, federation=replace(made.federation, n_users=1000))
    requests = [Request(SumNoise(), name=name) for name in "ab"]
    one, two = (query.sampled for query in asked(requests, made, Users(rate=0.5)))
    assert not np.array_equal(one, two)
    again = asked(requests, made, Users(rate=0.5))
    assert np.array_equal(one, again[0].sampled)


@pytest.mark.parametrize(
    ("requests", "message"),
    [
        ([Request(SumNoise()), Request(SumNoise())], "share a name"),  # and so their noise
        ([Request(SumNoise(), n_summed=1000)], "a sum over 1000 of 4 silos"),
        ([Request(SumNoise(), n_summed=0)], "a sum over 0 of 4 silos"),
        ([Request(SumNoise(), invited=(0, 0, 1, 2))], "not different silos"),
        ([Request(SumNoise(), invited=(0, 1, 2, 4))], "not different silos"),
    ],
)
def test_what_cannot_be_asked_is_refused(requests, message):
    with pytest.raises(ValueError, match=message):
        asked(requests, plan())


def test_a_rule_for_each_silos_own_units_does_not_weigh_users():
    """A user would move the sum by the bound in every silo."""
    with pytest.raises(ValueError, match="in full in each"):
        Users(RecordsInFull())


class Quiet(SumNoise):
    """An event of the author's own."""

    def event(self, view):
        return GaussianDpEvent(1000.0), ()


class Near(Users):
    """A distance of the author's own."""

    def reach(self, n_summed, *, replaced, single):
        return 0.1


class Even(UniformWeighting):
    """A spread of the author's own."""

    def spread(self, n_silos):
        return 0.1


class Loud(Gaussian):
    """A mechanism of the author's own."""

    def event(self, *, sensitivity=1.0, shares=1.0):
        return GaussianDpEvent(1000.0)


class Rare(Poisson):
    """Batches of the author's own."""

    def event(self, release, size, records):
        return PoissonSampledDpEvent(1e-6, release)


class OwnGroup(UserGroup):
    """Says itself when it takes part."""


GAUSSIAN = Gaussian(1.0, 5.0)


class Anybody:
    """What draws batches, outside of the framework."""


@pytest.mark.parametrize(
    ("author", "request_", "contributors", "mechanism", "drawing"),
    [
        ("Quiet", Request(Quiet()), Users(), GAUSSIAN, None),
        ("Near", Request(SumNoise()), Near(), GAUSSIAN, None),
        ("Even", Request(SumNoise()), Users(Even()), GAUSSIAN, None),
        ("OwnGroup", Request(SumNoise()), Users(groups=(OwnGroup("all", 1, 1),)), GAUSSIAN, None),
        ("Loud", Request(SumNoise()), Users(), Loud(1.0, 5.0), None),
        ("Rare", Request(SumNoise(), batches=Rare()), RecordVectors(), GAUSSIAN, None),
        ("Anybody", Request(SumNoise(), batches=Poisson()), RecordVectors(), GAUSSIAN, Anybody()),
    ],
)
def test_what_rests_on_an_authors_word_is_declared(
    author, request_, contributors, mechanism, drawing
):
    made = plan(mechanism=mechanism)
    target = Target("record" if contributors.one_silo else "user", ADD_REMOVE)
    [query] = plan_queries(
        [request_], made, contributors, [target], round=1, claim=claimed, author=drawing
    )
    assert query.asked.enforced  # the framework bounds and noises all the same
    assert {event.authors for event in query.events} == {(author,)}


@pytest.mark.parametrize(
    ("noise", "target"),
    [
        (NoNoise(), USER),  # a silo's vector moves by twice the bound in every silo
        (DpSgdNoise(lambda records: (3, 1.0)), Target("record", REPLACE)),  # half the distance
    ],
)
def test_noise_that_does_not_hide_a_silos_unit_is_no_certificate(noise, target):
    [query] = asked([Request(noise)], plan(), Silos(), (target,))
    assert {event.certified for event in query.events} == {NonPrivateDpEvent()}


@pytest.mark.parametrize(
    ("target", "batches", "why"),
    [
        (Target("user", ADD_REMOVE), None, "nothing bounds the records of a user"),
        (Target("user", ADD_REMOVE, records=2), None, "nothing bounds the records of a user"),
        (Target("users", ADD_REMOVE), None, "nothing is known of the unit users"),
        (Target("patient", REPLACE), None, "nothing is known of the unit patient"),
        (Target("silo", REPLACE), None, "nothing is known of the unit silo"),
        (Target("record", ADD_REMOVE), WithoutReplacement(), "batches are for replace"),
        (Target("record", REPLACE), Poisson(), "batches are for add/remove"),
    ],
)
def test_a_unit_that_is_not_what_one_record_moves_has_no_certificate(target, batches, why):
    request = Request(SumNoise(), batches=batches)
    [query] = asked([request], plan(), RecordVectors(), (target,))
    assert {event.certified for event in query.events} == {NonPrivateDpEvent()}
    assert all(why in event.assumptions[-1] for event in query.events)


@dataclass(frozen=True)
class Louder(UldpSgd):
    """Its later rounds have no noise."""

    def requests(self, round, plan):
        return (Request(SumNoise() if round == 1 else NoNoise()),)


@dataclass(frozen=True)
class LouderBetween(UldpSgd):
    """Its rounds have little noise, but for the first and the last one."""

    def requests(self, round, plan):
        noise = 1.0 if round in (1, 5) else 0.2
        return (Request(SumNoise(lambda n_summed: noise), recipe=self.recipe(plan)),)


def test_a_forecast_and_a_target_look_at_the_rounds_between_the_first_and_the_last():
    forecast = EpsilonForecast.of(sgd(LouderBetween, "rounds=5", "accountant.target=3"))
    ledger = Ledger(forecast.exp.accountant)
    for round in range(1, 6):
        ledger.record(forecast.cost.events(round))
    assert headline(forecast.rows_at([5])) == headline(ledger.rows(5)) <= 3


@dataclass(frozen=True)
class Personal(UldpSgd):
    """Evaluates what silos remember."""

    def requests(self, round, plan):
        return (Request(SumNoise(), stateful=True),)

    def evaluated(self, state, silo_states):
        return state.params


def test_metrics_of_models_that_silos_keep_are_diagnostics():
    for run, label in ((sgd(UldpSgd), "released"), (sgd(Personal), "diagnostic")):
        with prepare(run) as prepared:
            shown = labels_of(run, prepared)["metrics.csv"][prepared.evaluation.task.metric]
        assert shown.partition(" ")[0] == label


@dataclass(frozen=True)
class Pausing(UldpSgd):
    """Its second round asks nothing."""

    def requests(self, round, plan):
        return () if round == 2 else super().requests(round, plan)


@pytest.mark.parametrize(
    ("method", "label"), [(UldpSgd, "charged"), (Louder, "diagnostic"), (Pausing, "charged")]
)
def test_a_model_is_a_charged_one_if_every_round_that_releases_something_has_noise(method, label):
    run = sgd(method, "rounds=3")
    with prepare(run) as prepared:
        assert labels_of(run, prepared)["model.safetensors"].partition(" ")[0] == label


def test_raw_memories_of_silos_never_reach_the_checkpoint_of_a_run_that_protects_somebody():
    with pytest.raises(ConfigError, match="randomness=system: seed, since silos keep raw"):
        EpsilonForecast.of(sgd(Personal, "randomness=system")).rows_at([1])


@pytest.mark.parametrize(("own", "valid"), [(False, True), (True, False)])
def test_a_run_that_rests_on_an_authors_word_is_not_called_private(own, valid, tmp_path):
    exp = experiment(
        "algo=uldp_avg", "rounds=1", "randomness=system", "preset.n_users=4", "preset.n_silos=2"
    )
    if own:
        exp = replace(exp, mechanism=Loud(clip=1.0, noise_multiplier=5.0))
    train(exp, "{}", tmp_path / "run", quiet=True)
    status = json.loads((tmp_path / "run" / "status.json").read_text())
    assert status["dp_valid"] is valid


class MixedBlocks(UldpSgd):
    """Adds one user's change to everybody's."""

    def local_update(self, silo, query, down):
        def mix(block):
            return replace(block, vectors=block.vectors + block.vectors[:1])

        return super().local_update(silo, query, down).map(mix)


class RateOfAll(UldpSgd):
    """A learning rate made of all records of a silo."""

    def local_update(self, silo, query, down):
        recipe = replace(query.asked.recipe, lr=float(silo.data.x.abs().mean()))
        asked = replace(query.asked, recipe=recipe)
        return super().local_update(silo, replace(query, asked=asked), down)


class Remembers(UldpSgd):
    """Starts from what the silo's users did before."""

    def local_update(self, silo, query, down):
        start = silo.state.get("start", down["params"])
        return super().local_update(silo, query, {"params": start})


class StillSeparate(UldpSgd):
    """Another global step; the framework trains."""

    def global_update(self, state, query, total, plan):
        return state.with_params(state.params + np.sign(total.vector))


class Momentum(Sgd):
    """An optimiser sees the gradients of all users of a block."""


@dataclass(frozen=True)
class OwnOptimizer(UldpSgd):
    def recipe(self, plan):
        return replace(super().recipe(plan), optimizer=Momentum())


@dataclass(frozen=True)
class OwnBatchSize(MinibatchSgd):
    """Under shuffle, a framework's class asks with this author's batches."""

    def size(self, name, records):
        return 1


@pytest.mark.parametrize(
    ("cls", "words", "authors"),
    [
        (UldpSgd, (), ()),
        (StillSeparate, (), ()),
        (MixedBlocks, (), ("MixedBlocks",)),
        (RateOfAll, (), ("RateOfAll",)),
        (Remembers, (), ("Remembers",)),
        (OwnOptimizer, (), ("Momentum",)),
        (MinibatchSgd, ("aggregation=shuffle",), ()),
        (OwnBatchSize, ("aggregation=shuffle",), ("OwnBatchSize",)),
    ],
)
def test_a_certificate_is_enforced_only_if_no_author_can_mix_units(cls, words, authors):
    name = "algo=minibatch_sgd" if issubclass(cls, MinibatchSgd) else "algo=uldp_sgd"
    given = ("algo.calibration=given", "algo.noise_multiplier=1") if words else ()
    plain = experiment(name, "preset.n_users=8", *given)
    algo = cls(**values(plain.algo))
    exp = experiment(name, "preset.n_users=8", *given, *words, algo=algo)
    _, _, federation = allocate(exp)
    [query] = exp.algo.queries(1, exp.planner.plan(federation))
    assert query.asked.enforced  # bounded and noised all the same
    assert {event.authors for event in query.events} == {authors}


@pytest.mark.parametrize("contributors", [Silos(), RecordVectors()])
def test_a_recipe_trains_users_only(contributors):
    request = Request(SumNoise(), recipe=Recipe(1, None, 0.1))
    with pytest.raises(ValueError, match="a recipe trains users, not"):
        asked([request], plan(), contributors)


@dataclass(frozen=True)
class ByRank(Allocator):
    """Says that users keep their records, and draws them by rank: one absent moves all borders."""

    def stability(self, data):
        return Stability(LOADED, (OWN_USERS,))

    def allocate(self, records, data, streams):
        rank = np.argsort(np.argsort(records.x[:, 0], kind="stable"), kind="stable")
        user = rank * self.n_users // len(rank)
        return self._allocation(user, user % self.n_silos, np.ones(len(user), bool), data)


@dataclass(frozen=True)
class OwnChoice(UldpSgd):
    """Says that its choice of records is stable."""

    def training_records(self, allocation, data):
        return replace(allocation, stability=allocation.stability.then(OWN_USERS))


ONE_ROUND = "rounds=1", "randomness=system", "preset.n_silos=2"


@pytest.mark.parametrize("author", ["ByRank", "OwnChoice"])
def test_an_authors_word_for_the_distance_of_neighbours_is_declared(author, tmp_path):
    exp = sgd(UldpSgd if author == "ByRank" else OwnChoice, *ONE_ROUND)
    exp = replace(exp, allocator=ByRank(8, 2)) if author == "ByRank" else exp
    train(exp, "{}", tmp_path / "run", quiet=True)
    status = json.loads((tmp_path / "run" / "status.json").read_text())
    assert status["epsilon"] is not None
    assert not status["dp_valid"]
    rows = EpsilonForecast.of(exp).rows_at([1])
    assert {row.status for row in rows} == {f"declared by {author}"}


@dataclass(frozen=True)
class Generous(Accountant):
    """Promises a tenth."""

    def epsilons(self, composition, adjacency, group_size=1):
        return {"tenth": 0.1}


def test_an_epsilon_of_somebody_elses_accountant_is_declared(tmp_path):
    exp = replace(sgd(UldpSgd, *ONE_ROUND), accountant=Generous())
    train(exp, "{}", tmp_path / "run", quiet=True)
    status = json.loads((tmp_path / "run" / "status.json").read_text())
    assert (status["epsilon"], status["dp_valid"]) == (0.1, False)
