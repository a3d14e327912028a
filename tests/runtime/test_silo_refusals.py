"""What a silo refuses, whoever asks: it computes each query from its own settings, answers none
twice, and stays within its budget."""

import resource
import signal
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from dp_accounting import DpEvent
from runs import experiment, journaled

from fedpriv.accountants.charges import Charge
from fedpriv.accountants.events import Event
from fedpriv.crypto.x25519 import PrivateKey
from fedpriv.engines.base import Network
from fedpriv.errors import RefusedError
from fedpriv.ledgers.counted_lines import CountedFile
from fedpriv.parties.messages import MessageError, decode, encode
from fedpriv.parties.post import Post
from fedpriv.rounds.query import Broadcast, QueryTask, SetUpTask, next_session
from fedpriv.runtime import prepare
from fedpriv.runtime.silo_journal import SiloJournal
from fedpriv.testing.faults import Faulty, alter

AGGREGATIONS = {
    "plain": ("algo=uldp_avg", "aggregation=plain"),
    "masked": ("algo=uldp_avg", "aggregation=masked"),
    "secagg": ("algo=uldp_avg", "aggregation=secagg"),
    "exact": ("algo=uldp_avg", "aggregation=secagg_exact_noise"),
    "admm": ("algo=uldp_avg", "aggregation=admm", "aggregation.masking=true"),
    "private": (
        "algo=uldp_avg",
        "algo.weighting=records",
        "aggregation=private_weighting",
        "aggregation.key_bits=256",
        "aggregation.precision=16",
        "aggregation.count_cap=4",
        "aggregation.n_max=12",
    ),
}


def silo_of(prepared):
    return prepared.session.participants["silo0"]


@pytest.mark.parametrize("name", AGGREGATIONS)
def test_no_aggregation_answers_a_query_twice(name):
    """Not after another set-up either: the model could be another one, and the noise is another."""
    with prepare(experiment("rounds=3", *AGGREGATIONS[name])) as prepared:
        result = prepared.run_round(prepared.queries(1), prepared.state)
        assert result.aborted is None
        for again in (False, True):
            prepared.standing.ready = not again
            repeated = prepared.run_round(prepared.queries(1), result.state)
            assert "silo0 refuses round 1, query 0: it has answered it" in repeated.aborted
        assert prepared.run_round(prepared.queries(2), result.state).aborted is None


def test_noise_is_sized_by_the_silos_own_settings():
    """A query that claims a sum over 10^12 silos would get a noise share of nothing."""
    with prepare(experiment("algo=uldp_avg", "rounds=2", "mechanism=gaussian")) as prepared:
        [query] = prepared.queries(1)
        lie = replace(query, n_summed=10**12, sensitivity=1e-9)
        participant = silo_of(prepared)
        asked = participant.asked(QueryTask(*lie.serial))
        assert (asked.n_summed, asked.sensitivity) == (query.n_summed, query.sensitivity)
        assert set(vars(QueryTask(1, 0))) == {"round", "place", "repeats", "broadcast"}


@pytest.mark.parametrize(
    "task",
    [
        QueryTask(0, 0),
        QueryTask(4, 0),
        QueryTask(1, 1),
        QueryTask(1, -1),
        QueryTask(True, 0),
        QueryTask(1.0, 0),
        QueryTask("1", 0),
        QueryTask(1, 0, repeats=3),
        QueryTask(1, 0, repeats=-1),
    ],
    ids=str,
)
def test_a_silo_answers_nothing_that_the_run_does_not_have(task):
    with prepare(experiment("algo=uldp_avg", "rounds=3")) as prepared:
        with pytest.raises(RefusedError, match=r"^silo0 refuses"):
            next(silo_of(prepared).take_part(task))
        helper, told = (
            prepared.session.participants["server"],
            replace(task, broadcast=Broadcast({})),
        )
        with pytest.raises(RefusedError, match=r"^server refuses"):
            next(helper.take_part(told))
        assert prepared.run_round(prepared.queries(1), prepared.state).aborted is None


@pytest.mark.parametrize("task", [None, 3, "query", b"x", (1, 0), {"round": 1}], ids=repr)
def test_what_is_no_task_is_refused(task):
    with prepare(experiment("algo=uldp_avg")) as prepared:
        for name in ("silo0", "server"):
            with pytest.raises(RefusedError, match=f"{name} refuses a task of type"):
                prepared.session.participants[name].take_part(task)


def test_a_task_holds_data_and_no_code():
    told = QueryTask(3, 1, 0, Broadcast({"params": np.ones(2)}))
    assert decode(encode(told)).broadcast.vectors["params"].tolist() == [1.0, 1.0]
    with pytest.raises(MessageError):
        encode((print, 1))


@pytest.mark.parametrize(
    "silos",
    [
        (),
        ("silo0",),
        ("silo0", "silo1"),
        ("silo0", "silo0", "silo1"),
        ("silo0", "silo1", "me"),
        ("silo0", "silo1", "silo9"),
        ("silo0", "silo1", "silo2", "silo3"),
        ("silo0", "silo1", 2),
        (1, 2, 3),
    ],
    ids=str,
)
def test_a_set_up_with_other_silos_is_refused(silos):
    with prepare(experiment("algo=uldp_avg")) as prepared:
        task = SetUpTask(next_session(prepared.standing.session_name), silos)
        for name in ("silo0", "server"):
            with pytest.raises(RefusedError, match=f"{name} refuses a set-up with"):
                next(prepared.session.participants[name].take_part(task))


def test_a_session_that_is_not_new_is_refused():
    with prepare(experiment("algo=uldp_avg")) as prepared:
        for session in (prepared.standing.session_name, bytes(16), b"", b"z" * 17, "z" * 16, None):
            with pytest.raises(RefusedError, match="its session is not a new one"):
                next(silo_of(prepared).take_part(SetUpTask(session, prepared.silos)))


def test_set_ups_without_a_query_are_limited_and_counted():
    with prepare(experiment("algo=uldp_avg", "aggregation=masked")) as prepared:
        for _ in range(13):  # 2 * 3 + 8, with the first
            prepared.set_up(1, [])
        with pytest.raises(RefusedError, match="14 in a row without a query"):
            prepared.set_up(1, [])
        assert prepared.standing.set_ups == 15
        assert silo_of(prepared).journal.set_ups == 14


def test_the_limit_of_set_ups_recovers_with_rounds_and_they_are_never_answered_then():
    """All told 14 for each round at most, whatever a server asks for."""
    journal, session, rounds = SiloJournal("silo0", None), b"", []
    for round in (1, 1, 5, 2, 3, 5, 4, 6):
        for _ in range(20):
            session = next_session(session)
            try:
                journal.set_up(session, 3, round)
            except RefusedError:
                break
            rounds.append(round)
    assert rounds == [1] * 14 + [5] * 14 + [6] * 14
    for passed_over in ((1, 0), (5, 1)):
        with pytest.raises(RefusedError, match="gone on to a later one"):
            journal.require_new(passed_over)
    journal.require_new((6, 0))
    journal.begin((6, 0))
    journal.set_up(next_session(session), 3, 6)  # there may be a second query in the round
    journal.require_new((6, 1))


@pytest.mark.parametrize("round", [0, -1, 4, 10**9, True, 1.0, "1", None])
def test_a_set_up_before_a_round_that_the_run_does_not_have_is_refused(round):
    with prepare(experiment("algo=uldp_avg", "rounds=3")) as prepared:
        session = next_session(prepared.standing.session_name)
        task = SetUpTask(session, prepared.silos, round=round)
        for name in ("silo0", "server"):
            with pytest.raises(RefusedError, match=f"{name} refuses a set-up before round"):
                next(prepared.session.participants[name].take_part(task))
        assert prepared.run_round(prepared.queries(1), prepared.state).aborted is None


def test_a_silo_has_a_budget_of_its_own():
    """A coordinator that forgets a round still gets no more than the budget."""
    words = ("algo=uldp_avg", "rounds=4", "accountant.budget=1e3")
    with prepare(experiment(*words)) as prepared:
        settings = prepared.settings
        charge = settings.charge((1, 0), settings.silos)
        spent, twice = (settings.epsilon({charge: count}) for count in (1, 2))
        assert 0 < spent < twice < 1e3
    with prepare(experiment(*words[:2], f"accountant.budget={(spent + twice) / 2}")) as prepared:
        result = prepared.run_round(prepared.queries(1), prepared.state)
        assert result.aborted is None
        refused = prepared.run_round(prepared.queries(2), result.state)
        assert "would exceed its budget of epsilon 0.893156 at" in refused.aborted


# -- the journal -----------------------------------------------------------------------------------


@pytest.fixture
def journal(tmp_path):
    """Opens a life of silo0's journal."""
    file = CountedFile(str(tmp_path / "new folder" / "silo0.txt"), str(tmp_path / "counters"))

    @contextmanager
    def life(**about):
        found = SiloJournal("silo0", file, **about)
        try:
            yield found
        finally:
            found.close()

    life.path = Path(file.path)
    return life


def test_a_journal_outlives_its_silo(journal):
    first, second = next_session(b""), next_session(next_session(b""))
    loud, quiet = Charge("server", ()), Charge("released model", ())
    with journal(run="a") as life:
        life.set_up(first, 3, 1)
        for serial, charge in (((1, 0), loud), ((2, 0), quiet), ((2, 1), loud)):
            life.begin(serial, charge)
    with open(journal.path, "a") as file:
        file.write("query 3 0")  # cut off: this query never began
    with journal(run="a") as life:
        spent = {charge.observer: count for charge, count in life.spent.items()}
        assert spent == {"server": 2, "released model": 1}
        assert life.set_ups == 1
        with pytest.raises(RefusedError, match="not a new one"):
            life.set_up(first, 3, 1)
        life.set_up(second, 3, 1)
        life.begin((1, 0), Charge("server", ()))
    with journal(run="b") as life:  # the line is not a part of the one cut off
        assert (life.set_ups, sorted(life.spent.values())) == (2, [1, 3])
        life.set_up(first, 3, 1)  # whose signatures are worth nothing under other settings


def test_no_query_is_charged_as_another_after_a_full_disk(journal):
    """The first charge is written, and not yet known to be: the counter has no room."""
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    try:
        with journal() as life:
            [counter] = (journal.path.parents[1] / "counters").iterdir()
            room = counter.stat().st_size + 80  # of one line
            resource.setrlimit(resource.RLIMIT_FSIZE, (room, before[1]))
            with pytest.raises(RefusedError, match="File too large"):
                life.begin((1, 0), Charge("server", ()))
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
            with pytest.raises(RefusedError):
                life.begin((1, 0), Charge("released model", ()))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, ignored)
    with journal() as life:
        life.begin((1, 0), Charge("released model", ()))
    with journal() as life:
        assert {charge.observer: count for charge, count in life.spent.items()} == {
            "released model": 1
        }


@pytest.mark.parametrize(
    "line",
    [
        "query 1 0 one",
        "query 1 0 7",
        "query",
        "nonsense",
        "setup xyz",
        "setup a xyz",
        "budget 3",
        "budget -3 0.1",
        "charge",
        "charge {}",
        'charge ["server", "", [["server", "user", "replace", "", 1, "", false, null]]]',
        'charge ["s", "", [["s", "user", "replace", "", 1, "", false, {"attr": []}, null]]]',
        'charge ["s", "", [["s", "user", "replace", "", 1, "", false, {"Mapping": []}, null]]]',
    ],
)
def test_a_damaged_journal_ends_the_silo(journal, line):
    """With the right counter."""
    with CountedFile(str(journal.path), str(journal.path.parents[1] / "counters")).open() as lines:
        lines.append(f"{line}\nsetup a {'00' * 16}\n".encode())
    with (
        pytest.raises(RefusedError, match=r"silo0\.txt is damaged .*: silo0 answers nothing"),
        journal(),
    ):
        pass


def test_what_no_line_can_hold_is_not_answered(journal):
    class Own(DpEvent):
        pass

    event = Event("server", "user", "replace", Own(), None)
    with journal() as life:
        with pytest.raises(RefusedError, match="cannot write down what it answers: Own is no"):
            life.begin((1, 0), Charge("server", (event,)))
        assert not life.spent


def test_a_silo_refuses_a_second_answer_beyond_the_target(tmp_path):
    words = ("rounds=2", "randomness=system", "accountant=rdp", "accountant.target=1.5")
    *first, _, second = answers_to_two_coordinators(experiment(*words), tmp_path, 2)
    assert first == [None, None]
    assert "would exceed its budget of epsilon 1.5" in second


def answers_to_two_coordinators(exp, journals, rounds):
    """Why each of these rounds had no sum. Neither coordinator knows of the other."""
    aborts = []
    for _ in range(2):
        with prepare(journaled(exp, journals)) as prepared:
            for number in range(1, rounds + 1):
                result = prepared.run_round(prepared.queries(number), prepared.state)
                aborts.append(result.aborted)
    return aborts


# -- signatures ------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", AGGREGATIONS)
def test_every_message_of_every_aggregation_is_signed_under_the_roster(name):
    """The set-up's too. A signature is bound to the settings: under others it is worth nothing."""
    letters = []

    class Wiretap(Network):
        def carry(self, step, sent):
            letters.extend(sent)
            return sent

    with prepare(experiment("rounds=1", *AGGREGATIONS[name])) as prepared:
        prepared.session.network = Wiretap
        prepared.set_up(1, [])
        assert prepared.run_round(prepared.queries(1), prepared.state).aborted is None
        assert letters
        participants = prepared.session.participants
        for letter in letters:
            assert len(letter.message.signature) == 64
            owner, reader = participants[letter.sender], participants[letter.receiver]
            assert owner.protocol.signer.registry == reader.protocol.signer.registry
        identity = participants[letters[0].receiver].identity
        other = identity.signer(bytes(32), prepared.standing.session_name)
        own = identity.signer(prepared.settings.digest, prepared.standing.session_name)
        statement = ("message", b"x")
        assert own.verifies(identity.name, own.sign(statement), statement)
        assert not other.verifies(identity.name, own.sign(statement), statement)


def test_parties_with_different_settings_do_not_understand_each_other():
    """One party's copy has another clipping bound: its messages are refused, not summed."""
    with prepare(experiment("algo=uldp_avg", "rounds=2")) as prepared:
        spec = prepared.session.specs["silo1"]
        algo = replace(spec.settings.algo, local_epochs=7)
        prepared.session.specs["silo1"] = replace(spec, settings=replace(spec.settings, algo=algo))
        prepared.session.reopen({"silo1": {}})
        prepared.standing.ready = False
        result = prepared.run_round(prepared.queries(1), prepared.state)
        assert "is refused: the signature is not its own" in result.aborted


def test_a_server_that_turns_bad_cannot_put_its_keys_in_between():
    """It is honest at first, ends a round with one malformed letter, and so gets a new set-up. From
    there on it would pass keys of its own on, and read every input."""
    own, exp = PrivateKey.generate(), experiment("algo=uldp_avg", "aggregation=masked", "rounds=4")

    def malformed(message):
        return replace(message, content="no vector")

    def its_own(message):
        """The server knows its key, and can sign whatever it says in its own name."""
        server = running[0].session.participants["server"].protocol.signer
        keys = {name: (own.public.raw, server.sign((name,))) for name in message.content}
        post = Post("server", message.session, (message.round, message.place), server)
        return post.signed("keys", {"silo0": keys})["silo0"]

    faults = (
        alter(malformed, exchange=2, phase="message", sender="silo1"),
        alter(its_own, exchange=3, phase="keys", receiver="silo0"),
    )
    running = []
    with prepare(replace(exp, engine=Faulty(exp.engine, faults))) as prepared:
        running.append(prepared)
        before = dict(silo_of(prepared).protocol.seeds)
        results = []
        for number in (1, 2, 3):
            results.append(prepared.run_round(prepared.queries(number), prepared.state).aborted)
        assert results[0] is None
        assert "silo1" in results[1]
        assert "a message of server is refused" in results[2]
        assert "has not signed the key that it passes on" in results[2]
        assert silo_of(prepared).protocol.seeds == before  # none is made with the server's key
        assert prepared.run_round(prepared.queries(4), prepared.state).aborted is None
