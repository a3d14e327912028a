"""How often units of the file are in samples, and whether each sample is drawn afresh.

Some records are marked: each has a feature of its own. The other records share one feature. The
coordinates of a linear model then show which records a silo's message is made of. Labels, owners,
local training and sampling stay the experiment's own. Runs without noise count how often each unit
is drawn. Every round begins with the first state.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy.stats import binom

from fedpriv.certificates.noise import DpSgdNoise
from fedpriv.certificates.request import Target, turn_of
from fedpriv.data.allocate import Allocation
from fedpriv.data.base import Corpus, with_corpus
from fedpriv.errors import FedprivError
from fedpriv.models.linear import Linear
from fedpriv.parties.party import silo_name
from fedpriv.rounds.plan import Plan
from fedpriv.rounds.query import Query
from fedpriv.rounds.user_groups import membership
from fedpriv.runtime import allocate
from fedpriv.settings.experiment import Experiment
from fedpriv.testing.charges import noisy_steps
from fedpriv.testing.event_parameters import inclusion
from fedpriv.testing.observation import ObservedRun, without_noise, without_plan_noise
from fedpriv.testing.premise import Premise, too_often, worst_of
from fedpriv.util.streams import Streams

RUNS = 40
"""Runs whose draws are counted, if time allows."""
MIN_RUNS = 4
"""Runs whose draws are counted, whatever time they take."""
FIRST_RUN = 2**38
"""Number of the first run, the seed of its samples."""
MOST_MARKED = 256
"""Most records with a feature of their own."""
FEATURE = 0.01
"""Size of features: so small that a step hardly changes the next step's gradients."""
VISIBLE = 1e-3
"""Share of a record's largest contribution that is more than rounding."""


@dataclass(frozen=True)
class MarkedUnit:
    """A user or record with marked records in one silo.

    marks: the features of the marked records.
    silo: where they are.
    turn: the turn of their user.
    group: the user's group; "" without groups.
    """

    marks: list[int]
    silo: int
    turn: int
    group: str


def sample_premises(
    exp: Experiment, *, rounds: int, seconds: float = math.inf
) -> Iterator[Premise]:
    """Measure the samples of all units that certificates describe as sampled.

    rounds: rounds of each run.
    seconds: processor time for the runs; `MIN_RUNS` are measured in any case.
    """
    try:
        file, rows = marked(exp)
        _, owners, federation = allocate(file)
        plan = file.planner.plan(federation)
        asked = [file.algo.queries(number, plan) for number in range(1, rounds + 1)]
    except FedprivError:  # the method takes no linear model
        return
    queries = [query for found in asked for query in found]
    if all(inclusion(event)[0] == 1 for query in queries for event in query.events):
        return
    inside = any(isinstance(one.noise, DpSgdNoise) for one in file.algo.requests(1, plan))
    counts = _counts(file, len(rows) + 1, queries, seconds, inside=inside)
    for target in file.algo.targets(federation):
        units = _units(file, owners, rows, single=target.unit == "record")
        for name in dict.fromkeys(query.name for query in queries):
            same = [query for query in queries if query.name == name]
            rates = [[_declared(query, target, unit) for unit in units] for query in same]
            hits = [[counts[q.serial][:, one.marks].sum(axis=1) for one in units] for q in same]
            share = f"share of {target.unit}s in a sample of {name}"
            yield from _premises(share, np.array(rates), np.array(hits))


def marked(exp: Experiment) -> tuple[Experiment, np.ndarray]:
    """The experiment on a linear model and records with a feature of their own each, and the rows
    of these records. Of records that are drawn together, one is marked."""
    owners = allocate(exp)[1]
    order = np.lexsort((owners.user, owners.silo))
    rows = order[owners.trains[order]][:: exp.data.records_per_draw]
    rows = rows[np.linspace(0, len(rows) - 1, min(len(rows), MOST_MARKED)).astype(int)]
    size = len(rows) + 1  # the last one is of all others

    def change(corpus: Corpus, streams: Streams) -> Corpus:
        x, test = (np.zeros((len(part), size), np.float32) for part in (corpus.train, corpus.test))
        x[:, -1] = FEATURE
        x[rows, -1] = 0.0
        x[rows, np.arange(len(rows))] = FEATURE * (1 + np.arange(len(rows)) % 4)
        return Corpus(replace(corpus.train, x=x), replace(corpus.test, x=test))

    data = with_corpus(exp.data, change, shape=(size,), text=False)
    return replace(exp, data=data, model=Linear(bias=False)), rows


def _counts(
    exp: Experiment, features: int, queries: Sequence[Query], seconds: float, *, inside: bool
) -> dict[tuple[int, int], np.ndarray]:
    """How often each feature's record is drawn for each query, (runs, features).

    inside: whether samples are drawn for steps inside local training. Then the sums of steps are
        looked at: a message may repeat those of earlier rounds, and fade some of them.
    """
    end = time.process_time() + seconds
    seen: dict[tuple[int, int], list[np.ndarray]] = {query.serial: [] for query in queries}
    sums: list[np.ndarray] = []

    def noiseless(total: np.ndarray, deviation: float, _: object) -> np.ndarray:
        sums.append(total)
        return total

    def as_it_is(plan: Plan) -> Plan:
        return plan

    change = as_it_is if inside else without_plan_noise(as_it_is)
    with ObservedRun(exp, change, ()) as run, noisy_steps(noiseless):
        for number in range(RUNS):
            if number >= MIN_RUNS and time.process_time() > end:
                break
            state = run.restart(FIRST_RUN + number)
            state = state.with_params(np.zeros_like(state.params))
            for round in range(1, queries[-1].round + 1):
                for query in run.prepared.queries(round):
                    sums.clear()
                    total, _ = run.exchange(query if inside else without_noise(query), state)
                    sent = sums if inside else [run.taps[name].message for name in total.silos]
                    parts = [one.reshape(-1, features) for one in sent]
                    seen[query.serial].append(np.abs(parts).sum(axis=(0, 1)))
    return {serial: _times(np.array(found)) for serial, found in seen.items()}


def _times(x: np.ndarray) -> np.ndarray:
    """How often records are drawn, (runs, features), from what they contribute: the smallest step
    between two contributions of a record is one draw."""
    steps = np.diff(np.sort(np.vstack([np.zeros_like(x[:1]), x]), axis=0), axis=0)
    once = np.where(steps > VISIBLE * x.max(axis=0), steps, math.inf).min(axis=0)
    return np.asarray(np.rint(x / once), dtype=int)


def _units(
    exp: Experiment, owners: Allocation, rows: np.ndarray, *, single: bool
) -> list[MarkedUnit]:
    """Single records, or the records of each user in one silo: its others go with the same coin."""
    own = exp.algo.contributors
    groups = [group.name for group in own.groups] or [""]
    group_of = (
        membership(own.groups, owners.n_users) if own.groups else np.zeros(owners.n_users, int)
    )
    found: dict[int, MarkedUnit] = {}
    for mark, row in enumerate(rows):
        user, silo = int(owners.user[row]), int(owners.silo[row])
        new = MarkedUnit([], silo, user % own.turns, groups[group_of[user]])
        unit = found.setdefault(mark if single else user, new)
        if unit.silo == silo:
            unit.marks.append(mark)
    return list(found.values())


def _declared(query: Query, target: Target, unit: MarkedUnit) -> tuple[float, int]:
    """The least probability of a draw that an event of a query declares for a unit, and the number
    of draws of its marked records."""
    found = [(1.0, 1)]
    for event in query.events:
        turn = turn_of(event.scope)
        here = event.scope.partition("/")[0] in ("", silo_name(unit.silo))
        same = (event.unit, event.adjacency) == (target.unit, target.adjacency)
        if (
            same
            and event.group in ("", unit.group)
            and (here if turn is None else turn == unit.turn)
        ):
            rate, draws = inclusion(event)
            most = min(event.group_size, len(unit.marks))
            found.append((rate, draws // event.group_size * most))
    return min(found)


def _premises(about: str, rates: np.ndarray, hits: np.ndarray) -> Iterator[Premise]:
    """Tests of the samples of one query.

    about: what is counted.
    rates: (rounds, units, 2), rate and number of draws.
    hits: (rounds, units, runs), how often each was drawn.
    """
    rate = rates[..., 0]
    draws = np.where(rate < 1, rates[..., 1], 0)
    hits = np.minimum(hits, draws[..., None])
    if not hits.any():
        return

    def often(name: str, hits: np.ndarray, rate: np.ndarray, draws: np.ndarray) -> Premise:
        # Units with rates of their own differ less than all at the mean rate.
        mean = float((rate * draws).sum() / draws.sum())
        return too_often("", name, int(hits.sum()), hits.shape[-1] * int(draws.sum()), mean)

    yield often(about, hits, rate, draws)
    by_unit = zip(*(np.moveaxis(values, 1, 0) for values in (hits, rate, draws)))
    for name, parts in (("round", zip(hits, rate, draws)), ("unit", by_unit)):
        own = [(at, *one) for at, one in enumerate(parts, start=1) if one[2].any()]
        yield worst_of([often(f"{about}, {name} {at}", *one) for at, *one in own])
    several = draws > 1
    if several.any():
        # One coin for all records of a unit would draw each of them often enough.
        chance = np.asarray(binom.sf(1, draws, rate))
        yield often(f"{about}, several records at once", hits > 1, chance, several)
    pairs = len(hits) // 2 * 2
    mean = np.floor(rate * draws)
    above, chance = hits > mean[..., None], np.asarray(binom.sf(mean, draws, rate))
    both, chance = above[:pairs:2] & above[1:pairs:2], chance[:pairs:2] * chance[1:pairs:2]
    if chance.any():
        yield often(f"{about}, often and twice in a row", both, chance, chance > 0)
