"""Attacks on lines of the trust pages, other than the tests that the lines link to.

    python tests/trust/lines_attacked.py [docs/trust/attacked.md]

writes a row for each: the line, what was tried, and what came of it. Draws are fresh in every run.
"""

from __future__ import annotations

import gzip
import os
import random
import sys
import tempfile
import traceback
from dataclasses import dataclass, replace
from pathlib import Path

ROOT = Path(__file__).parents[2]
for room in ("", "tests", "tests/aggregation", "tests/aggregation/secagg", "tests/runs"):
    sys.path.insert(0, str(ROOT / room))

import numpy as np  # noqa: E402
import pytest  # noqa: E402
from aggregation.test_masked_servers import check as masked_server  # noqa: E402
from command import run as command  # noqa: E402
from parties_of_generators import Protocols, changed, run  # noqa: E402
from queries import query_for  # noqa: E402
from secagg.cheating_server import Attack, aggregation_of, unguarded  # noqa: E402
from secagg.secure_sums import parties as sum_parties  # noqa: E402
from secagg.secure_sums import ready, total_of  # noqa: E402
from secagg.strategies_of_servers import random_view, split, two_sets  # noqa: E402
from secagg.test_random_servers import attack as random_server  # noqa: E402

from fedpriv.aggregation.base import MESSAGE, SERVER  # noqa: E402
from fedpriv.aggregation.masked import Masked, mask  # noqa: E402
from fedpriv.aggregation.plain import Plain  # noqa: E402
from fedpriv.aggregation.secagg.aggregation import SecAgg  # noqa: E402
from fedpriv.aggregation.secagg.threat_model import Setting, Witnesses  # noqa: E402
from fedpriv.aggregation.weighted import WEIGHTS  # noqa: E402
from fedpriv.crypto.roster import Roster, new_identities  # noqa: E402
from fedpriv.crypto.signatures import SigningKey, VerificationKey  # noqa: E402
from fedpriv.data.pickled_numbers import read_pickled_numbers  # noqa: E402
from fedpriv.engines.descriptions import describe, restore  # noqa: E402
from fedpriv.errors import (  # noqa: E402
    AggregationAbortedError,
    ConfigError,
    FedprivError,
    RefusedError,
)
from fedpriv.parties.messages import MessageError, decode, encode  # noqa: E402
from fedpriv.rounds.local_job import LocalJob  # noqa: E402
from fedpriv.rounds.tasks import QueryTask, SetUpTask  # noqa: E402
from fedpriv.rounds.weighting import RecordWeighting  # noqa: E402
from fedpriv.runs.stored_config import read_config  # noqa: E402
from fedpriv.runtime import prepare  # noqa: E402
from fedpriv.runtime.silo_journal import SiloJournal  # noqa: E402
from fedpriv.testing import experiment  # noqa: E402
from fedpriv.testing.damage import flip_bit  # noqa: E402
from fedpriv.testing.fault_trials import FaultTrials  # noqa: E402
from fedpriv.testing.faults import alter, delay, drop, duplicate, forge  # noqa: E402
from scripts.fault_scenarios import SCENARIOS  # noqa: E402

CHANCE = random.Random()
ATTACKS = []


class Held(Exception):
    """The line holds; the text says what was seen."""


@dataclass(frozen=True)
class Row:
    page: str
    line: str
    how: str
    work: object


def attack(page, line, how):
    """Decorator: the work returns what was seen, and raises AssertionError where the line fell."""

    def added(work):
        ATTACKS.append(Row(page, line, how, work))
        return work

    return added


def refused(work, *errors):
    """Whether the work ends with one of the errors, in one line."""
    try:
        work()
    except errors as error:
        return "\n" not in str(error)
    return False


# -- faults ----------------------------------------------------------------------------------------


def lives(name, count=12):
    wrong = aborted = 0
    with FaultTrials(SCENARIOS[name].experiment()) as bench:
        everybody = (*bench.prepared.aggregation.helpers, *bench.prepared.silos)
        for _ in range(count):
            seed = CHANCE.random()
            kinds = {
                "alter": lambda where, seed=seed: alter(
                    lambda message: flip_bit(random.Random(seed), message), **where
                ),
                "forge": lambda where: forge(lambda content: (content, 0), **where),
                "delay": lambda where: delay(CHANCE.randint(1, 5), **where),
                "drop": lambda where: drop(**where),
                "duplicate": lambda where: duplicate(**where),
            }
            faults = [
                kinds[CHANCE.choice([*kinds])](
                    {
                        "exchange": CHANCE.randint(0, 3),
                        "sender": CHANCE.choice(everybody),
                        "step": CHANCE.choice([None, *range(9)]),
                    }
                )
                for _ in range(CHANCE.randint(2, 4))
            ]
            trial = bench.run(faults, (1, 2))
            aborted += len(trial.aborts)
            wrong += trial.crash is not None or not bench.is_correct(trial)
    assert not wrong, f"{wrong} of {count}"
    return f"{count} lives: no wrong sum, no other error, {aborted} exchanges ended without a sum"


LINES_OF_FAULTS = {
    "plain": "network: damage, cut or redirect a message",
    "plain_state": "network, silo: let a message be missing",
    "masked": "network: delay, repeat or mix messages",
    "masked_state": "silo: fall silent",
    "secagg": "network: change a message, or send it to another silo",
    "secagg_state": "silos: drop out in any phase",
    "exact": "silos: drop out in any phase",
    "private": "silo: send what is no list of ciphertexts",
    "oblivious": "any party: fall silent, or talk for ever",
    "shuffle": "silo: fall silent",
    "admm": "peer: fall silent, or send what no honest peer sends",
    "admm_masked": "peers: be left when others no longer answer",
}
PAGES = {"exact": "secagg_exact_noise", "private": "private_weighting", "oblivious": "README"}
for world, line in LINES_OF_FAULTS.items():
    page = PAGES.get(world, world.removesuffix("_state").removesuffix("_masked"))
    attack(page, line, f"two to four faults at once, drawn ({world})")(
        lambda world=world: lives(world)
    )


# -- keys, tasks, journals -------------------------------------------------------------------------


@attack(
    "README",
    "network, server: replay a message of other settings or sessions",
    "one bit of the settings' digest, the session or the statement flipped",
)
def bound_signatures():
    one = new_identities(["silo0", "server"])["silo0"]
    for _ in range(400):
        parts = [bytearray(CHANCE.randbytes(32)), bytearray(CHANCE.randbytes(16))]
        said = ("text", CHANCE.randrange(2**60))
        signature = one.signer(*map(bytes, parts)).sign(said)
        at = CHANCE.randrange(3)
        if at == 2:
            said = ("text", said[1] ^ 1)
        else:
            parts[at][CHANCE.randrange(len(parts[at]))] ^= 1 << CHANCE.randrange(8)
        assert not one.signer(*map(bytes, parts)).verifies("silo0", signature, said)
    return "400 of 400 refused"


@attack(
    "README",
    "owner of a key: rotate or revoke it",
    "sign with the key before the last two rotations; rotate back to it",
)
def old_keys():
    for _ in range(50):
        made = new_identities(["silo0", "silo1"])
        roster = made["silo0"].roster
        for _ in range(2):
            roster = roster.rotated("silo0", SigningKey.generate().verification_key)
        reader = replace(made["silo1"], roster=roster)
        stale = made["silo0"].signer(b"x", b"y").sign(("a",))
        assert not reader.signer(b"x", b"y").verifies("silo0", stale, ("a",))
        again = made["silo0"].key.verification_key
        assert refused(
            lambda again=again, roster=roster: roster.rotated("silo0", again), FedprivError
        )
    return "50 of 50 refused"


@attack(
    "README",
    "owner of a key: rotate or revoke it",
    "a roster file with a revoked line deleted, two active keys, a fingerprint of another",
)
def forged_rosters():
    found = 0
    for _ in range(60):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "roster.csv"
            made = new_identities(["silo0", "silo1", "server"])["silo0"].roster
            made.rotated("silo1", SigningKey.generate().verification_key).write(path)
            lines = path.read_text().splitlines()
            kind = CHANCE.randrange(3)
            if kind == 0:
                lines = [line for line in lines if "revoked" not in line]
            elif kind == 1:
                lines = [line.replace("revoked", "active") for line in lines]
            else:
                cells = [line.split(",") for line in lines]
                cells[1][3], cells[2][3] = cells[2][3], cells[1][3]
                lines = [",".join(line) for line in cells]
            path.write_text("\n".join(lines) + "\n")
            found += refused(lambda path=path: Roster.read(path), FedprivError)
    assert found == 60, found
    return "60 of 60 refused in one line"


@attack(
    "README",
    "network: change a message and make its checksum anew",
    "a key of small order in the roster, under which anybody can sign",
)
def small_order():
    raws = [bytes(32), (1).to_bytes(32, "little"), (2**255 - 20).to_bytes(32, "little")]
    raws += [bytes([raw[0], *raw[1:31], raw[31] | 128]) for raw in raws]
    assert all(VerificationKey(raw).low_order for raw in raws)
    roster = new_identities(["silo0", "server"])["silo0"].roster
    named = [
        refused(
            lambda raw=raw: roster.rotated("silo0", VerificationKey(raw)), ValueError, FedprivError
        )
        for raw in raws
    ]
    assert all(named), named
    return f"{len(raws)} of {len(raws)} refused"


@attack(
    "README",
    "server, coordinator: ask a silo for another sum, round or noise",
    "300 tasks with drawn fields",
)
def odd_tasks():
    values = [
        0,
        0,
        0,
        0,
        1,
        1,
        1,
        2,
        3,
        -1,
        2**70,
        True,
        None,
        1.0,
        "1",
        b"1",
        (1,),
        [0],
        float("nan"),
    ]
    with prepare(experiment("algo=uldp_avg", "rounds=3")) as prepared:
        silo = prepared.session.participants["silo0"]
        answered = 0
        for _ in range(300):
            task = QueryTask(*CHANCE.choices(values, k=3))
            try:
                next(silo.take_part(task))
                answered += 1
                fair = type(task.round) is type(task.place) is type(task.repeats) is int
                assert fair
                assert 1 <= task.round <= 3
                assert task.place == 0
                assert task.repeats >= 0
            except (RefusedError, AggregationAbortedError):
                pass
    return f"{answered} answered, all of them queries of the run; the others refused"


@attack(
    "README",
    "server, coordinator: ask for the same query again",
    "the same round with repeats 0 to 5, after another set-up or not",
)
def same_query():
    for words in (
        ("aggregation=plain",),
        ("aggregation=masked",),
        ("aggregation=secagg",),
        ("aggregation=secagg_exact_noise",),
    ):
        with prepare(experiment("rounds=3", "algo=uldp_avg", *words)) as prepared:
            for number in (2, 3):
                assert prepared.run_round(prepared.queries(number), prepared.state).aborted is None
            for repeats in range(6):
                prepared.ready = CHANCE.random() < 0.5
                again = [replace(query, repeats=repeats) for query in prepared.queries(2)]
                result = prepared.run_round(again, prepared.state)
                assert result.aborted is not None, (words, repeats)
    return "24 of 24 refused"


@attack(
    "README",
    "the same, over restarts with a journal",
    "restart with a journal and no budget; ask for an answered query with system randomness",
)
def journal_without_budget():
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "silo0.txt"
        first = SiloJournal("silo0", path)
        first.begin((1, 0))
        again = SiloJournal("silo0", path)
        again.begin((1, 0))
        assert again.answered[1, 0] == 2
    return (
        "**answered again**, and counted: without a budget nothing refuses. The line asks for a "
        "budget"
    )


@attack("README", "the same, over restarts with a journal", "cut the journal off at every byte")
def cut_journals():
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "silo0.txt"
        journal = SiloJournal("silo0", path)
        for number in range(1, 6):
            journal.begin((number, 0))
        whole = path.read_bytes()
        for size in range(len(whole) + 1):
            path.write_bytes(whole[:size])
            try:
                found = SiloJournal("silo0", path)
            except RefusedError:
                continue
            assert len(found.answered) == whole[:size].count(b"\n")
    return (
        f"{len(whole) + 1} lengths: whole lines count, a cut one never began. Who deletes lines "
        "makes a silo forget: the journal is as safe as its disk"
    )


@attack(
    "README",
    "server, coordinator: ask for set-ups without end",
    "sessions that are older, equal, of other types and lengths",
)
def sessions():
    with prepare(experiment("algo=uldp_avg")) as prepared:
        now = prepared.session_name
        older = (int.from_bytes(now, "big") - 1).to_bytes(16, "big")
        tried = [
            now,
            older,
            now[:8] + bytes(8),
            now + b"\0",
            now[:-1],
            bytearray(now),
            now.hex(),
            5,
            None,
            [now],
        ]
        silo = prepared.session.participants["silo0"]
        for session in tried:
            task = SetUpTask(session, prepared.silos)
            assert refused(lambda task=task: next(silo.take_part(task)), RefusedError), session
    return f"{len(tried)} of {len(tried)} refused"


@attack(
    "README",
    "coordinator: send a description or a task that runs code",
    "2,000 descriptions with one drawn change in their text",
)
def changed_descriptions():
    from scripted_parties import Role

    text, arrays = describe(Role((1, "a", b"b", {"c": (2.5, None)})), "silo0")
    read = 0
    for _ in range(2000):
        at = CHANCE.randrange(len(text))
        other = text[:at] + CHANCE.choice('{}[]":,0aos.') + text[at + CHANCE.randrange(2) :]
        try:
            restore((other, arrays))
            read += 1
        except ValueError:
            pass
    return f"{read} were descriptions still, of plain values; the others one kind of error"


@attack(
    "README",
    "any party: send bytes that would fill the memory",
    "20,000 frames of drawn letters and lengths",
)
def frames():
    read = 0
    for _ in range(20_000):
        frame = bytearray(encode({"a": [1, (2.5, "b")], "c": np.arange(3)}))
        for _ in range(CHANCE.randint(1, 6)):
            frame[CHANCE.randrange(len(frame))] = CHANCE.choice(b"NTFisbtldago\xff\0\x7f")
        try:
            decode(bytes(frame))
            read += 1
        except MessageError:
            pass
    return f"{read} were messages, the others one kind of error"


# -- plain -----------------------------------------------------------------------------------------


def plain_sum(change):
    protocols = Protocols(Plain(), (0, 1, 2))
    run(protocols.setup(np.ones((3, 1), dtype=np.int64)))
    query = query_for(Plain(), 3, size=2)
    cast = protocols.query(
        query, {name: LocalJob(iter(()), np.ones(2)) for name in protocols.names}
    )
    protocols.says(cast, "silo1", MESSAGE, lambda sent: {SERVER: change(sent[SERVER])})
    return run(cast)[SERVER].vector


@attack(
    "plain",
    "silo, cheating: send NaN or infinity",
    "NaN with a payload, minus infinity, other dtypes and shapes",
)
def no_numbers():
    nan = np.array([0x7FF8000000000001, 0], dtype=np.uint64).view(np.float64)
    wrong = [
        nan,
        np.array([-np.inf, 0]),
        np.ones(2, np.float32),
        np.ones((2, 1)),
        np.ones(3),
        np.array([1, 2]),
        [1.0, 2.0],
        None,
    ]
    for message in wrong:
        assert refused(
            lambda message=message: plain_sum(lambda _: message), AggregationAbortedError
        ), message
    return f"{len(wrong)} of {len(wrong)} end the query with the silo's name"


@attack(
    "plain",
    "silo, cheating: send any vector of finite numbers",
    "1.7e308, the largest finite number",
)
def largest():
    total = plain_sum(lambda _: np.array([1.7e308, -1.7e308]))
    return f"moves the sum to {total[0]:.1e}, unseen, as the line says"


@attack(
    "README",
    "server: make weights up that are outside 0 to 1",
    "one unit in the last place above 1, the smallest negative number, NaN, infinity, -1",
)
def weights():
    lies = [np.nextafter(1, 2), -5e-324, np.nan, np.inf, -1.0]
    for lie in lies:
        protocols = Protocols(Plain(), (0, 1, 2), RecordWeighting())
        cast = protocols.setup(np.array([[1, 2], [3, 1], [5, 6]]))

        def lying(sent, lie=lie):
            wrong = sent["silo0"].copy()
            wrong[0] = lie
            return sent | {"silo0": wrong}

        signer = lambda protocols=protocols: protocols[SERVER].signer  # noqa: E731
        cast[SERVER] = changed(cast[SERVER], WEIGHTS, lying, name=SERVER, signer=signer)
        assert refused(lambda cast=cast: run(cast), AggregationAbortedError), lie
    return f"{len(lies)} of {len(lies)} refused"


@attack(
    "plain",
    "silos, colluding: it learns nothing that it does not see",
    "the page read against the certificate of a silo",
)
def colluding_among_themselves():
    exp = experiment("algo=uldp_avg", "aggregation=plain", "mechanism=gaussian")
    silo = next(one for one in exp.aggregation.threat_model().observers if one.name == "silo")
    assert silo.own_shares == 1
    return (
        "**fell**: two silos that pool their shares leave (n - 2) / n of the noise; the "
        "certificate against a silo counts (n - 1) / n. README has a line on it now"
    )


# -- masked ----------------------------------------------------------------------------------------


@attack(
    "masked",
    "silos, colluding, with the server: learn the sum of the others, and no more",
    "100 servers of drawn lies with zero to three silos",
)
def masked_servers():
    learned = sum(masked_server(CHANCE.randrange(10**6, 10**9))[0] for _ in range(100))
    return f"{learned} sums of all honest silos learned, nothing beside"


@attack(
    "masked",
    "silos, colluding, with the server: no more than the others' sum",
    "the page read against the certificate of the server",
)
def masked_noise():
    server = next(one for one in Masked().threat_model().observers if one.name == SERVER)
    assert server.own_shares == server.colluding == 0
    return (
        "**fell**: the sum of the others has (n - c) / n of the noise, and the server's "
        "certificate counts n. The line says so now"
    )


@attack(
    "masked",
    "server, curious: compare queries, cohorts or set-ups",
    "2,000 masks of drawn serials, models and cohorts under one seed",
)
def masks():
    seeds = {f"silo{i}": CHANCE.randbytes(32) for i in range(6)}
    seen, told = set(), set()
    for _ in range(2000):
        cohort = tuple(sorted(CHANCE.sample([*seeds], CHANCE.randint(2, 6))))
        about = (
            (CHANCE.randint(1, 99), CHANCE.randint(0, 9)),
            CHANCE.choice([b"", b"m", b"n"]),
            cohort,
        )
        if "silo0" not in cohort or about in told:
            continue
        told.add(about)
        made = mask(
            np.zeros(4, np.uint64), "silo0", cohort, seeds=seeds, serial=about[0], told=about[1]
        )
        seen.add(made.tobytes())
    assert len(seen) == len(told)
    return f"{len(told)} masks, all different"


@attack(
    "masked",
    "server, curious: it sees uniformly random integers",
    "chi-square of each byte of 40,000 masked zeros",
)
def uniform():
    seeds = {f"silo{i}": CHANCE.randbytes(32) for i in range(3)}
    made = mask(np.zeros(40_000, np.uint64), "silo0", seeds, seeds=seeds, serial=(1, 0))
    worst = max(
        float(((np.bincount(column, minlength=256) - 156.25) ** 2 / 156.25).sum())
        for column in made.view(np.uint8).reshape(-1, 8).T
    )
    assert worst < 370  # 255 expected, standard deviation 22.6
    return f"worst of eight bytes {worst:.0f} (expected 255, deviation 22.6)"


@attack(
    "masked",
    "silo, cheating: move its message",
    "beyond the range: does the query end with its name?",
)
def beyond():
    protocols = Protocols(Masked(), (0, 1, 2))
    run(protocols.setup(np.ones((3, 1), dtype=np.int64)))
    query = query_for(Masked(), 3, size=2)
    cast = protocols.query(
        query, {name: LocalJob(iter(()), np.ones(2)) for name in protocols.names}
    )
    protocols.says(
        cast,
        "silo1",
        MESSAGE,
        lambda sent: {SERVER: sent[SERVER] + np.array(2**62, sent[SERVER].dtype)},
    )
    with pytest.raises(AggregationAbortedError) as abort:
        run(cast)
    assert "silo1" not in str(abort.value)
    return (
        "ends without a name, as the line says; README said that every exchange ends with a "
        "name: **fell**, and has the exception now"
    )


# -- secagg ----------------------------------------------------------------------------------------


def servers(name, count):
    learned = 0
    for _ in range(count):
        learned += sum(
            bool(found.learned()) for found in random_server(CHANCE.randrange(10**6, 10**9), name)
        )
    return f"{2 * count} strategies, {learned} learned the one sum, none more"


for page, name, line in (
    ("secagg", "secagg", "server, cheating: draw what it says to each silo"),
    ("secagg_exact_noise", "secagg_exact_noise", "server, cheating: split the survivors"),
    ("secagg", "ring", "on a sparse graph: leave out a stretch of the ring"),
):
    attack(page, line, "60 drawn servers, each twice, with replays")(
        lambda name=name: servers(name, 60)
    )


def drawn_setting(most, *, safe, exact=False):
    while True:
        silos = CHANCE.randint(2, most)
        candidates = CHANCE.choice([silos, CHANCE.randint(2, silos)])
        cohort = CHANCE.randint(1, candidates)
        threshold = CHANCE.randint(1, cohort)
        colluding = CHANCE.randint(0, threshold - 1)
        made = Setting(
            silos=silos,
            candidates=candidates,
            cohort=cohort,
            threshold=threshold,
            colluding=colluding,
            most=candidates if exact else None,
        )
        if made.safe == safe:
            return made


@attack(
    "secagg",
    "a cheating server and colluding silos learn one sum at most",
    "4,000 drawn views of safe settings of up to nine silos",
)
def views():
    learned = 0
    for _ in range(4000):
        view = random_view(CHANCE, drawn_setting(9, safe=True), Witnesses.RECEIPTS)
        assert not view.leaks
        learned += bool(view.learned())
    return f"{learned} learned one sum, none more"


@attack(
    "secagg_exact_noise",
    "server, cheating: no noise that is certified can be removed",
    "4,000 drawn views of safe settings of up to nine silos",
)
def noisy_views():
    for _ in range(4000):
        view = random_view(CHANCE, drawn_setting(9, safe=True, exact=True), Witnesses.RECEIPTS)
        assert not view.leaks
    return "none leaves less than is certified"


@attack(
    "secagg",
    "other settings are refused before a run, with the nearest that is allowed",
    "500 unsafe settings of up to 300 silos",
)
def unsafe():
    for _ in range(500):
        setting = drawn_setting(300, safe=False)
        nearest = setting.nearest()
        assert refused(
            lambda setting=setting: aggregation_of(setting).cohort_size(setting.silos), ConfigError
        ), setting
        assert nearest.safe
        aggregation_of(nearest).cohort_size(nearest.silos)
    return "500 of 500 refused in one line; the named setting is accepted"


@attack(
    "secagg",
    "server, cheating: tell some silos of other survivors",
    "the split on 20 drawn safe settings of three to seven real silos",
)
def splits():
    tried = 0
    while tried < 20:
        setting = drawn_setting(7, safe=True)
        if setting.silos < 3 or setting.candidates < setting.silos:
            continue
        try:
            view = split(setting)
        except (AssertionError, IndexError, ValueError, StopIteration):
            continue
        found = Attack(view, aggregation_of(setting))
        assert all(
            sum(map(bool, row.values())) > 1 or setting.cohort - setting.colluding < 2
            for row in found.learned()
        )
        tried += 1
    return "20 of 20: no single message read"


@attack(
    "secagg",
    "server and fewer silos than the threshold learn the others' sum, and no more",
    "a cheating server where 2 threshold <= candidates + colluding, without the check of settings",
)
def below_the_threshold():
    setting = Setting(silos=5, candidates=5, cohort=4, threshold=2, colluding=0)
    found = Attack(two_sets(setting), unguarded(setting))
    assert found.view.leaks
    assert found.agrees()
    return (
        "**fell**: it reads two sums. The line did not say that the server follows the protocol; "
        "it does now"
    )


@attack(
    "secagg",
    "the server learns only the sum over the chosen silos",
    "the same vectors in 30 rounds after one set-up",
)
def equal_numbers():
    protocols = ready(SecAgg(threshold=2, cohort=3), 3)
    for number in range(1, 31):
        total = total_of(sum_parties(protocols, np.ones((3, 5)), number))
        assert np.allclose(total.vector, 3, atol=1e-3)
    return "30 sums exact"


@attack(
    "secagg",
    "silo, cheating: speak in the name of another",
    "a letter of silo1 signed by silo2, in each phase",
)
def other_names():
    from secagg.secure_sums import PHASES

    for phase in PHASES:
        protocols = ready(SecAgg(threshold=3, cohort=3), 4)
        cast = sum_parties(protocols, np.ones((4, 2)))
        cast["silo1"] = changed(
            cast["silo1"], phase, lambda sent: sent, name="silo1", signer=protocols["silo2"].signer
        )
        ended = refused(lambda cast=cast: total_of(cast), AggregationAbortedError)
        assert ended, phase
    return "found in all five phases"


# -- files -----------------------------------------------------------------------------------------

TINY = ("allocator.n_users=8", "allocator.n_silos=2", "algo.local_epochs=1", "accountant=rdp")
PLACE = Path(tempfile.mkdtemp(prefix="lines"))


def stored():
    """A fresh copy of a finished run."""
    import shutil

    honest = PLACE / "honest"
    if not honest.exists():
        assert command(*TINY, "rounds=1", f"hydra.run.dir={honest}", cwd=PLACE).returncode == 0
    return Path(shutil.copytree(honest, PLACE / f"theirs{len(list(PLACE.iterdir()))}"))


def rewritten(folder, **values):
    import yaml

    config = yaml.safe_load((folder / "config.yaml").read_text())
    for key, value in values.items():
        *above, last = key.split("__")
        node = config
        for name in above:
            node = node[name]
        node[last] = value
    (folder / "config.yaml").write_text(yaml.safe_dump(config))
    return folder


@attack(
    "files",
    "a run's folder: name a class of its own",
    "names that only begin like fedpriv, or reach another module through one of ours",
)
def targets():
    evil = PLACE / "fedpriv_evil.py"
    evil.write_text(f"open({str(PLACE / 'ran')!r}, 'w')\nclass X: pass\n")
    names = [
        "fedpriv_evil.X",
        "fedprivx.X",
        "fedpriv.cli.os.system",
        "fedpriv.errors.sys.exit",
        "fedpriv..X",
        ".X",
        "fedpriv.runs.folder.Path",
        "fedpriv.testing.deaths.Death",
        "builtins.dict",
        "FEDPRIV.x.X",
    ]
    for name in names:
        folder = rewritten(stored(), tracker___target_=name)
        done = command(f"resume={folder}", "rounds=2", cwd=PLACE)
        assert done.returncode == 2, name
        assert not (PLACE / "ran").exists(), name
    return f"{len(names)} of {len(names)} refused, nothing ran"


@attack(
    "files",
    "a run's folder: contain an interpolation",
    "six resolvers, of the environment, Hydra and other keys",
)
def interpolations():
    texts = [
        "${oc.env:HOME}",
        "a${oc.env:PATH}",
        "${hydra:runtime.cwd}",
        "${oc.decode:1}",
        "${seed}",
        "${now:%Y}",
    ]
    for text in texts:
        folder = rewritten(stored(), device=text)
        assert refused(lambda folder=folder: read_config(folder), FedprivError), text
    return f"{len(texts)} of {len(texts)} refused"


@attack(
    "files",
    "a run's folder: contain links to other files",
    "a link to a link, a hard link",
)
def links():
    victim = PLACE / "victim"
    fell = []
    for kind in ("link to a link", "hard link"):
        victim.write_text("keep\n")
        folder = stored()
        path = folder / "metrics.csv"
        victim.write_bytes(path.read_bytes())
        before = victim.read_bytes()
        path.unlink()
        if kind == "hard link":
            path.hardlink_to(victim)
        else:
            (folder / "other").symlink_to(victim)
            path.symlink_to(folder / "other")
        command(f"resume={folder}", "rounds=2", cwd=PLACE)
        if victim.read_bytes() != before:
            fell.append(kind)
    if fell:
        return f"**fell** for a {' and a '.join(fell)}: see the page"
    return "refused, or the victim unchanged"


@attack(
    "files",
    "a run's folder: a checkpoint with a right checksum and wrong arrays",
    "random bytes of the same length, a cut file, a file after itself",
)
def checkpoints():
    for kind in range(3):
        folder = stored()
        path = folder / "checkpoint.safetensors"
        raw = path.read_bytes()
        path.write_bytes([CHANCE.randbytes(len(raw)), raw[: len(raw) // 2], raw + raw][kind])
        done = command(f"resume={folder}", "rounds=2", cwd=PLACE)
        assert done.returncode == 2, kind
        assert "Traceback" not in done.stderr
    return "3 of 3 refused in one line"


@attack(
    "files",
    "a run's folder: huge or deeply nested files, YAML tags or references",
    "anchors that multiply, python tags, duplicate and composed keys, a zero byte, deep lists",
)
def yaml_bombs():
    anchors = "a0: &a0 [1,1]\n" + "".join(
        f"a{i}: &a{i} [*a{i - 1},*a{i - 1}]\n" for i in range(1, 30)
    )
    texts = [
        anchors,
        "a: !!python/object/apply:os.system [id]\n",
        "<<: {a: 1}\n",
        "seed: 1\nseed: 2\n",
        "? [a]\n: 1\n",
        "\0",
        "a: " + "[" * 5000,
    ]
    for text in texts:
        folder = stored()
        (folder / "config.yaml").write_text(text)
        assert refused(lambda folder=folder: read_config(folder), FedprivError), text[:40]
    return f"{len(texts)} of {len(texts)} refused in one line"


@attack(
    "files",
    "CIFAR-10's pickles: call functions, or contain arrays of pointers",
    "a thousand pickles of drawn opcodes, and builtins under other protocols",
)
def pickles():
    import pickle

    class Evil:
        def __reduce__(self):
            return (os.mkdir, (str(PLACE / "pickled"),))

    numbers = {b"data": np.zeros((2, 3), np.uint8), b"labels": [1, 2]}
    for protocol in range(5):
        raw = pickle.dumps({b"data": Evil()}, protocol)
        assert refused(lambda raw=raw: read_pickled_numbers(raw), ValueError)
    read = 0
    raw = pickle.dumps(numbers, 2)
    for _ in range(1000):
        other = bytearray(raw)
        other[CHANCE.randrange(len(other))] = CHANCE.randrange(256)
        try:
            found = read_pickled_numbers(bytes(other))
            read += 1
            assert all(
                not isinstance(one, np.ndarray) or one.dtype.kind in "iufb"
                for one in found.values()
            )
        except ValueError:
            pass
    assert not (PLACE / "pickled").exists()
    return f"nothing called; {read} of 1,000 changed ones were numbers still"


@attack(
    "files",
    "safetensors files contain arrays and no code",
    "offsets beyond the file, a header longer than the file, drawn bytes",
)
def safetensors():
    from safetensors import SafetensorError
    from safetensors.numpy import load_file

    path = PLACE / "m.safetensors"
    header = b'{"a":{"dtype":"F32","shape":[9999999999],"data_offsets":[0,4]}}'
    for raw in (
        len(header).to_bytes(8, "little") + header + b"\0" * 4,
        (2**60).to_bytes(8, "little"),
        CHANCE.randbytes(64),
    ):
        path.write_bytes(raw)
        with pytest.raises(SafetensorError):
            load_file(path)
    return "3 of 3 refused"


@attack(
    "files",
    "archives: unpack to more than the official files",
    "a gzip of 10^9 zeros in place of MNIST's labels",
)
def gzip_bomb():
    folder = PLACE / "mnist" / "MNIST" / "raw"
    folder.mkdir(parents=True)
    with gzip.open(folder / "train-labels-idx1-ubyte.gz", "wb", 1) as file:
        for _ in range(200):
            file.write(bytes(5 * 10**6))
    done = command("allocation", "data=mnist", f"data.root={PLACE / 'mnist'}", cwd=PLACE)
    assert done.returncode == 2
    assert done.stderr.strip().count("\n") == 0
    return "one line, before it is unpacked"


@attack(
    "files",
    "a run's folder: contain names with control characters",
    "escapes of one and two bytes and a right-to-left mark, in a key and its value",
)
def control():
    folder = rewritten(stored(), **{"algo\x1b[31m": "\x9b2J\u202e"})
    done = command(f"resume={folder}", "rounds=2", cwd=PLACE)
    assert done.returncode == 2
    assert not {"\x1b", "\x9b", "\u202e"} & set(done.stderr), repr(done.stderr)
    return "printed as text"


@attack(
    "files",
    "`fedpriv table` writes only --out",
    "the run's files before and after table, epsilon and load",
)
def only_reads():
    folder = stored()
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    for words in (("table", str(folder)), ("epsilon", f"resume={folder}")):
        assert command(*words, cwd=PLACE).returncode == 0
    assert before == {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    return "no byte changed"


@attack(
    "files",
    "a run's folder: name a Ray cluster, a tracking server or keys",
    "address auto, a roster without keys under Ray, a tracker's file address",
)
def addresses():
    ray, mlflow = "fedpriv.engines.ray.RayEngine", "fedpriv.trackers.mlflow.MlFlow"
    nodes = [
        {"engine": {"_target_": ray, "address": "auto"}},
        {"engine": {"_target_": ray, "journals": "j"}},
        {"engine": {"_target_": ray, "roster": "r", "keys": "k", "journals": "j"}},
        {"tracker": {"_target_": mlflow, "uri": "file:///tmp/x", "experiment": "x"}},
    ]
    for node in nodes:
        folder = rewritten(stored(), **node)
        done = command(f"resume={folder}", "rounds=2", cwd=PLACE)
        assert done.returncode == 2, node
        assert "--trust-code" in done.stderr, done.stderr
    return f"{len(nodes)} of {len(nodes)} refused"


@attack(
    "README",
    "network: change a message and make its checksum anew",
    "signatures with S + L in place of S, cut, padded, of another type",
)
def malleable():
    order = 2**252 + 27742317777372353535851937790883648493
    one = new_identities(["silo0", "server"])["silo0"].signer(b"a", b"b")
    for number in range(50):
        said = ("text", number)
        good = one.sign(said)
        other = good[:32] + (int.from_bytes(good[32:], "little") + order).to_bytes(32, "little")
        for wrong in (other, good[:-1], good + b"\0", good.hex(), None, bytes(64)):
            assert not one.verifies("silo0", wrong, said)
        assert one.verifies("silo0", good, said)
    return "300 of 300 refused"


@attack(
    "README",
    "any party: send what no honest party sends",
    "two encodings of one message: 20,000 changed frames that can be read",
)
def one_encoding():
    raw = encode({"a": [1, (2.5, "b", None)], "c": np.arange(3.0), 5: 2**70, "d": np.int8(3)})
    read = 0
    for _ in range(20_000):
        frame = bytearray(raw)
        frame[CHANCE.randrange(len(frame))] = CHANCE.randrange(256)
        try:
            found = decode(bytes(frame))
        except MessageError:
            continue
        read += 1
        assert encode(found) == bytes(frame)
    return f"{read} read, each the only encoding of its message"


@attack(
    "README",
    "owner of a key: a roster names every party",
    "names that look alike, with a blank, in capitals",
)
def alike():
    from fedpriv.crypto.roster import RosterEntry

    keys = [SigningKey.generate().verification_key for _ in range(2)]
    for name in ("s\u0456lo0", "silo0 ", "SILO0", "silo00", "silo\u06600"):
        roster = Roster((RosterEntry(name, 1, keys[0]), RosterEntry("server", 1, keys[1])))
        assert "silo0" not in roster.keys
        assert refused(lambda roster=roster: roster.key("silo0"), FedprivError, KeyError)
    return "5 of 5 are somebody else"


@attack(
    "private_weighting",
    "server, cheating: choose a modulus",
    "proofs of another context or key, with one bit changed, of nothing",
)
def moduli():
    from fedpriv.crypto.paillier.keys import generate_key
    from fedpriv.crypto.paillier.modulus_proof import check_modulus, prove_modulus

    one, other = generate_key(512), generate_key(512)
    proof = prove_modulus(one, b"here")
    check_modulus(one.public, proof, b"here", prime_to=1)
    bent = bytearray(proof)
    bent[CHANCE.randrange(len(bent))] ^= 1
    wrong = [
        (one, proof, b"there"),
        (other, proof, b"here"),
        (one, bytes(bent), b"here"),
        (one, bytes(len(proof)), b"here"),
        (one, b"", b"here"),
    ]
    for key, said, context in wrong:
        assert refused(
            lambda k=key, s=said, c=context: check_modulus(k.public, s, c, prime_to=1), Exception
        )
    return "5 of 5 refused"


@attack(
    "secagg_exact_noise",
    "silo, cheating: add no noise at all",
    "the page read against README, whose line on missing noise named no such silo",
)
def silent_silo():
    text = (ROOT / "docs/trust/README.md").read_text()
    assert "A silo that adds no noise to what it sends is not found" in text
    return "**fell** in README: its line covered missing messages alone. It says so now"


@attack(
    "shuffle",
    "silo, cheating: send counts beyond what its records and noise can give",
    "-2^63, the largest number, one count of many, other dtypes and shapes",
)
def counts():
    from aggregation.test_shuffle import MESSAGE as SAID
    from aggregation.test_shuffle import SHUFFLER, cheating

    def one(sent):
        wrong = sent.copy()
        wrong.flat[-1] = -1
        return wrong

    lies = [
        lambda sent: np.full_like(sent, -(2**63)),
        lambda sent: np.full_like(sent, 2**63 - 1),
        one,
        lambda sent: sent.astype(np.float64),
        lambda sent: sent[:-1],
    ]
    for lie in lies:
        change = lambda sent, lie=lie: {SHUFFLER: lie(sent[SHUFFLER])}  # noqa: E731
        assert refused(lambda c=change: cheating("silo2", SAID, c), AggregationAbortedError)
    return "5 of 5 end the query with the silo's name"


@attack("shuffle", "shuffler, cheating: pass on another sum", "a sum with one count changed by one")
def shuffled():
    from aggregation.test_shuffle import SHUFFLED, SHUFFLER, cheating

    def one_more(sent):
        wrong = sent["server"].copy()
        wrong.flat[0] += 1
        return {"server": wrong}

    honest = cheating(SHUFFLER, SHUFFLED, lambda sent: sent).vector
    moved = cheating(SHUFFLER, SHUFFLED, one_more).vector - honest
    assert np.count_nonzero(moved) == 1
    return "moves one coordinate, unseen, as the line says"


def main(page=None, first="1", last="1000"):
    """Run the attacks from `first` to `last`. page: file for the table; "-": print it."""
    rows = []
    for number, row in enumerate(ATTACKS, 1):
        if not int(first) <= number <= int(last):
            continue
        try:
            seen = row.work()
        except Exception as error:
            traceback.print_exc()
            seen = f"ERROR {type(error).__name__}: {error}".replace("\n", " ")[:300]
        rows.append(f"| {number} | [{row.page}]({row.page}.md) | {row.line} | {row.how} | {seen} |")
        print(rows[-1], flush=True)
    if page not in (None, "-"):
        Path(page).write_text("\n".join(rows) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
