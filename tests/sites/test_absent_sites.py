"""Kills, partitions, delays and jumps of the clock on the real transport: every round whose cohort
is there has its sum, none is wrong, and each site has charged whatever it said. Sites that come
back take part again, without a person and with the keys that they had."""

import random
import threading
from collections import Counter
from contextlib import ExitStack, contextmanager

import pytest
from absences import ROUNDS, Oracle, incident, rounds_of
from waiting import wait_until

from fedpriv.runtime.silo_journal import SiloJournal
from fedpriv.settings.compose import one_experiment
from fedpriv.sites.serve import host_of
from fedpriv.testing.deaths import Death
from fedpriv.testing.fault_trials import FaultTrials
from fedpriv.testing.faults import FaultyNetwork
from sites.study import SILOS, Federation, free_port

pytest.importorskip("grpc")
WORDS = ("aggregation=secagg", "aggregation.cohort=2", "aggregation.threshold=2", "rounds=18")
TIMEOUT = 3.0
IN_BLOCK, BLOCKS = 10, 34


class Gone(Exception):
    """The line of a site is cut."""


class Hospital:
    """A site whose process dies, whose line is cut, or whose answers are late, when its time comes.

    away: exchanges in which it is not there; None: nothing happens.
    what: kill, cut before or after an answer, or late.
    wake: the frame of its first exchange away at which it happens.
    dialled: the exchange in which it dialled last. A process needs some time to start.
    """

    def __init__(self, here, name, exchange, ended):
        self.here, self.name, self.exchange, self.ended = here, name, exchange, ended
        self.host = here.host(name)
        self.away, self.what, self.wake, self.dialled = None, "", 0, -1
        self.frames = Counter()

    @property
    def answers(self):
        """How many its journal has charged."""
        return SiloJournal.seen(self.name, self.here.site(self.name).journal).spent.total()

    def plan(self, away, what, wake):
        self.away, self.what, self.wake, self.dialled = away, what, wake, -1
        self.frames.clear()

    def live(self):
        while not self.ended.is_set():
            self.dialled = self.exchange()
            try:
                self.here.dial(self.name, self.answer, self.ended)
            except Gone:
                if self.what == "kill":
                    self.host.close()
                    self.host = host_of(self.here.site(self.name))
                while self.away and self.exchange() < self.away.stop - 1:
                    if self.ended.wait(0.02):
                        break
        self.host.close()

    def answer(self, frame):
        now = self.exchange()
        away = self.away is not None and now in self.away
        if away and now + 1 == self.away.stop and frame.startswith(b"open "):
            away = False  # for the exchange after this one
        self.frames[now] += 1
        if away and (now > self.away.start or self.frames[now] > self.wake):
            if self.what == "late":
                self.ended.wait(1.25 * TIMEOUT)
            elif self.what == "cut after":
                self.host.answer(frame)
            raise Gone
        return self.host.answer(frame)


@contextmanager
def hospitals(folder):
    """A coordinator with a site for each silo, and what one process with all records would sum."""
    here = Federation(folder, WORDS, port=free_port(), budget=1e9)
    ended = threading.Event()
    benches = []

    def exchange():
        return len(getattr(benches[0].prepared.session.network, "sent", ())) - 1 if benches else -1

    sites = {f"silo{n}": Hospital(here, name, exchange, ended) for n, name in enumerate(SILOS)}
    threads = [threading.Thread(target=one.live) for one in sites.values()]
    with ExitStack() as stack:
        words = [*here.site("east").published().words, f"data.path={folder}/all.csv"]
        whole = stack.enter_context(FaultTrials(one_experiment(*words)))
        for thread in threads:
            thread.start()
            stack.callback(thread.join)
        stack.callback(ended.set)
        bench = FaultTrials(one_experiment(*here.words, f"engine.timeout={TIMEOUT}"))
        benches.append(stack.enter_context(bench))
        yield bench, whole, sites


def trial(bench, whole, sites, number):
    """One schedule. Returns how many rounds had to have a sum."""
    rng = random.Random(f"sites {number}")
    party, away, [what, *_] = incident(rng, (), tuple(sites))
    kinds = {Death: ["kill"]}.get(type(what), ["cut before", "cut after", "late"])
    session = bench.prepared.session
    wait_until(lambda: session.board.lines.keys() >= sites.keys(), 60)
    session.network = FaultyNetwork(())
    spent = {name: site.answers for name, site in sites.items()}
    sites[party].plan(away, rng.choice(kinds), rng.randint(0, 6))
    jump = rng.choice(ROUNDS)
    found = bench.run([], rounds_of(bench, {party} if away.stop == 10**6 else set(), jump))
    told = number, party, away, sites[party].what, found.aborts
    away = range(away.start, max(away.stop, sites[party].dialled + 1))
    sites[party].plan(None, "", 0)
    assert found.crash is None, told
    owed = Oracle(bench.prepared, [(party, away, ())]).require_sums(found, stateful=False)
    assert whole.is_correct(found), told
    for name, site in sites.items():
        said = sum(name in heard for heard in found.heard.values())
        assert site.answers - spent[name] >= said, (told, name)
    return owed


@pytest.mark.filterwarnings("ignore:silo. is silent", "ignore:round .* continuing without")
def test_whoever_is_away_no_round_of_a_cohort_is_lost(tmp_path):
    with hospitals(tmp_path) as world:
        assert trial(*world, 0)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:silo. is silent", "ignore:round .* continuing without")
@pytest.mark.parametrize("block", range(BLOCKS))
def test_in_none_of_many_schedules_is_a_round_of_a_cohort_lost(tmp_path, block):
    with hospitals(tmp_path) as world:
        for number in range(block * IN_BLOCK, (block + 1) * IN_BLOCK):
            assert trial(*world, number)
