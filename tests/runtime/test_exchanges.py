"""One exchange after the other: what the next one hangs on once one had no sum, and who is left to
be asked."""

from dataclasses import dataclass, replace
from types import SimpleNamespace

import numpy as np
import pytest

from fedpriv.accountants.ledger import Ledger
from fedpriv.errors import AggregationAbortedError, MisfitError, RefusedError, SilenceError
from fedpriv.rounds.query import Asked, SiloReport, events_of
from fedpriv.runtime import PreparedRun, prepare
from fedpriv.testing import experiment
from fedpriv.testing.experiments import SMALL
from fedpriv.util.stopwatch import Stopwatch

ALL = frozenset({"silo0", "silo1", "silo2", "silo3"})
PEERS = ("algo=fedavg", "preset.n_silos=9", "aggregation=admm")


@dataclass
class Scripted:
    """Parties whose set-ups end as told: in silence of those named, or well."""

    tries: list
    refusals: dict
    lost: frozenset = frozenset()

    def reopen(self, memories):
        pass

    def run(self, tasks, traffic):
        if self.tries and (silent := self.tries.pop(0)) is not None:
            raise SilenceError("silence", silent)
        return dict.fromkeys(tasks, True)


def scripted(*tries, **refusals):
    """A run of four silos, of which two are enough."""
    settings = SimpleNamespace(
        aggregation=SimpleNamespace(helpers=("server",)),
        continues_with=lambda left: left >= 2,
        silos=("silo0", "silo1", "silo2", "silo3"),
    )
    return PreparedRun(settings, Scripted([*tries], refusals), None, None, None)


@pytest.mark.parametrize(
    ("refusals", "why"),
    [({}, "no answer in two set-ups"), ({"silo1": RefusedError("silo1 has paused")}, "has paused")],
)
def test_whoever_is_silent_in_two_tries_of_a_set_up_is_left_out(refusals, why):
    prepared = scripted({"silo1"}, {"silo1"}, **refusals)
    with pytest.warns(RuntimeWarning, match=f"round 3: continuing without silo1: .*{why}"):
        prepared.set_up(3, [])
    assert prepared.standing.absent == {"silo1"}
    assert prepared.silos == ("silo0", "silo2", "silo3")


@pytest.mark.parametrize("guilty", [("silo1",), ("silo1", "silo3"), ("silo0", "silo1", "silo3")])
def test_whoever_was_at_fault_is_left_out_of_one_set_up_if_the_others_are_enough(guilty):
    prepared = scripted()
    prepared.standing.faults = {name: f"{name} has told another total" for name in guilty}
    if len(guilty) < 3:
        with pytest.warns(RuntimeWarning, match="silo1 has told another total"):
            prepared.set_up(3, [])
    else:
        prepared.set_up(3, [])
    assert prepared.standing.absent == ({*guilty} if len(guilty) < 3 else set())
    assert not prepared.standing.faults


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(
    "tries", [[], [{"silo1"}], [{"silo1"}, {"silo2"}]], ids=["none", "once", "in turns"]
)
def test_one_silence_leaves_nobody_out(tries):
    prepared = scripted(*tries)
    prepared.set_up(3, [])
    assert not prepared.standing.absent
    assert not prepared.session.tries


@pytest.mark.parametrize(
    "silent", [set(), {"server"}, {"silo1", "server"}, {"silo0", "silo1", "silo2"}, ALL], ids=len
)
def test_a_set_up_without_a_helper_or_with_too_few_silos_ends(silent):
    prepared = scripted(silent, None)
    with pytest.raises(SilenceError):
        prepared.set_up(3, [])
    assert prepared.session.tries == [None]


@pytest.fixture
def plain():
    with prepare(experiment(*SMALL, "algo=uldp_avg")) as prepared:
        yield prepared


def exchange(prepared, query=None, watch=None):
    asked = query or prepared.queries(1)[0]
    prepared.rehearse(asked)
    return prepared.exchange(asked, prepared.state, watch=watch or Stopwatch(), lines=[])


@pytest.mark.parametrize(
    ("abort", "stateful", "ready"),
    [
        (AggregationAbortedError, False, True),
        (AggregationAbortedError, True, False),  # silos go back
        (MisfitError, False, False),  # keys may be wrong
        (MisfitError, True, False),
    ],
)
def test_what_follows_a_query_without_a_sum(plain, abort, stateful, ready, monkeypatch):
    [query] = plain.queries(1)
    asked = replace(query, asked=Asked(stateful=stateful))

    def standing():
        now = plain.standing
        return now.ready, now.failures, now.aborted

    assert standing() == (True, 0, None)

    def ends(tasks, traffic):
        raise abort("over")

    with monkeypatch.context() as patched:
        patched.setattr(plain.session, "run", ends)
        for failures in (1, 2):
            plain.standing.ready = True
            with pytest.raises(abort):
                exchange(plain, asked)
            assert standing() == (ready, failures, query.serial)
    watch = Stopwatch()
    _, reports = exchange(plain, watch=watch)
    assert standing() == (True, 0, None)
    assert plain.standing.agreed_digest is None  # the server holds the state alone
    assert plain.silos_hold(plain.state)
    assert watch.seconds["local_training"] == pytest.approx(
        sum(report.seconds for report in reports)
    )


def test_a_method_that_must_not_repeat_itself_is_told_how_often_it_failed(plain):
    [query] = plain.queries(1)
    plain.standing.failures = 2
    assert plain.addressed(query).exchange.repeats == 0
    never = SimpleNamespace(never_repeats=True)
    plain.settings = replace(plain.settings, aggregation=never)
    assert plain.addressed(query).exchange.repeats == 2


def test_who_is_left_out_is_not_asked_and_the_others_owe_larger_shares(plain):
    [query] = plain.queries(1)
    query = replace(query, n_summed=1)
    assert plain.addressed(query).n_summed == 1
    plain.standing.absent = frozenset({"silo1"})
    addressed = plain.addressed(query)
    assert (addressed.invited, addressed.n_summed) == ((0, 2), 2)


def test_a_lost_silo_raises_what_the_others_know_of_the_noise_and_so_what_is_charged(plain):
    """Of three silos' noise a curious silo knows a third, of two silos' a half."""
    whole, left = (_noise_against_a_silo(plain, absent) for absent in ((), ("silo1",)))
    assert left == pytest.approx(whole * np.sqrt((1 / 2) / (2 / 3)))


def _noise_against_a_silo(prepared, absent):
    prepared.standing.absent = frozenset(absent)
    [query] = prepared.queries(1)
    assert query.n_summed == 3 - len(absent)
    [event] = [event for event in query.events if event.observer == "silo"]
    return event.certified.noise_multiplier


def test_a_round_that_was_charged_for_more_silos_than_are_left_releases_nothing(plain):
    [query] = plain.queries(1)
    plain.standing.absent = frozenset({"silo1"})
    with pytest.raises(AggregationAbortedError, match="the next is charged without them"):
        plain.addressed(query)


@pytest.mark.parametrize(
    ("words", "knows"), [(("algo=uldp_avg",), False), (PEERS, True)], ids=["server", "peers"]
)
def test_silos_know_beforehand_who_is_sampled_only_where_no_helper_tells(words, knows, monkeypatch):
    with prepare(experiment(*SMALL, *words)) as prepared:
        [query] = prepared.queries(1)
        seen = []

        def watched(tasks, traffic):
            seen.append(tasks["silo0"])
            raise AggregationAbortedError("over")

        monkeypatch.setattr(prepared.session, "run", watched)
        with pytest.raises(AggregationAbortedError):
            exchange(prepared, replace(query, sampled=np.array([True])))
    assert (seen[0].broadcast is not None) is knows


def test_peers_hold_the_state_that_the_run_goes_on_from():
    with prepare(experiment(*SMALL, *PEERS)) as prepared:
        start = prepared.state
        assert prepared.standing.agreed_digest == start.digest()
        result = prepared.run_round(prepared.queries(1), start)
        assert result.aborted is None
        assert prepared.standing.agreed_digest == result.state.digest() != start.digest()
        assert prepared.silos_hold(result.state)
        assert not prepared.silos_hold(start)


@pytest.mark.parametrize(
    ("told", "why"),
    [((0, 1, 2), None), ((0, 1, 0), "silo1 has told another state than most"), ((0, 0, 0), None)],
)
def test_a_state_is_held_if_all_report_it_and_one_who_reports_another_is_named(
    told, why, plain, monkeypatch
):
    run, states = plain.session.run, [bytes(31) + bytes([one]) for one in told]

    def differing(tasks, traffic):
        given = iter(states)
        learned = run(tasks, traffic)
        return {
            name: replace(known, state=next(given)) if isinstance(known, SiloReport) else known
            for name, known in learned.items()
        }

    monkeypatch.setattr(plain.session, "run", differing)
    if why is None:
        exchange(plain)
    else:
        with pytest.raises(MisfitError, match=why):
            exchange(plain)
    assert plain.standing.agreed_digest == (states[0] if {*told} == {0} else None)


def test_queries_of_one_round_have_noise_of_their_own_and_are_charged_apart():
    words = ("algo=prox_svrg", "algo.calibration=given", "algo.noise_multiplier=50")
    exp = experiment(*SMALL, *words)
    ledger, half = Ledger(exp.accountant), Ledger(exp.accountant)
    with prepare(exp) as prepared:
        gradient, difference = prepared.queries(1)
        first, _ = exchange(prepared, gradient)
        prepared.state = prepared.algo.next_state(prepared.state, gradient, first, prepared.plan)
        second, _ = exchange(prepared, difference)
    assert gradient.serial < difference.serial
    assert abs(np.corrcoef(first.vector, second.vector)[0, 1]) < 0.6
    ledger.record(events_of((gradient, difference)))
    half.record(gradient.events)
    assert min(row.certified for row in ledger.rows(1)) > min(row.certified for row in half.rows(1))
