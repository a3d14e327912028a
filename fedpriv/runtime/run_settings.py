"""One party's copy of a run's settings, from which it computes what may be asked of it."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, fields, is_dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from fedpriv.accountants.base import Accountant
from fedpriv.accountants.charges import Charge
from fedpriv.accountants.filters import Budget
from fedpriv.accountants.ledger import Ledger, headline
from fedpriv.aggregation.base import Aggregation
from fedpriv.aggregation.epsilon_target import PlanCost
from fedpriv.algorithms.base import Algorithm
from fedpriv.errors import RefusedError
from fedpriv.parties.party import silo_name
from fedpriv.parties.post import Serial
from fedpriv.rounds.plan import Plan
from fedpriv.rounds.query import Exchange, Query, QueryTask, SetUpTask


def settings_digest(*settings: Any) -> bytes:
    """SHA-256 of components and plain values.

    Frozen dataclasses count with their class and fields, collections with their items, arrays with
    their bytes, and any other object with its class alone.
    """
    state = hashlib.sha256()
    for part in _parts(settings):
        raw = part.encode()
        state.update(len(raw).to_bytes(8, "little") + raw)
    return state.digest()


def _parts(value: Any) -> Iterator[str]:
    cls = type(value)
    yield f"{cls.__module__}.{cls.__qualname__}"
    if value is None or cls in (bool, int, float, str, bytes):
        yield repr(value)
    elif isinstance(value, np.ndarray | np.generic):
        array = np.ascontiguousarray(value)
        yield f"{array.dtype.str} {array.shape} {hashlib.sha256(array.tobytes()).hexdigest()}"
    elif is_dataclass(value):
        for field in fields(value):
            if field.init and field.compare:
                yield field.name
                yield from _parts(getattr(value, field.name))
    elif isinstance(value, Mapping):
        yield str(len(value))
        for key in sorted(value, key=repr):
            yield from _parts(key)
            yield from _parts(value[key])
    elif isinstance(value, tuple | list | set | frozenset):
        yield str(len(value))
        ordered = value if isinstance(value, tuple | list) else sorted(value, key=repr)
        for item in ordered:
            yield from _parts(item)


@dataclass(frozen=True)
class RunSettings:
    """What a party knows of a run before it begins.

    The parties of one process share one copy, so that each query is computed once. Over Ray each
    party has its own.

    algo: the algorithm.
    aggregation: the aggregation.
    plan: public plan of the run.
    rounds: number of rounds.
    accountant: adds up what a silo has answered, where it has a budget.
    study: digest of the study of organisations; empty: there is none.
    rehearsed: queries, by serial, that the parties of this process answer in place of their own,
        as often as they are asked. Audits and checks set them; a run has none.
    """

    algo: Algorithm
    aggregation: Aggregation
    plan: Plan
    rounds: int
    accountant: Accountant
    study: bytes = b""
    rehearsed: dict[Serial, Query] = field(default_factory=dict, init=False, compare=False)
    _last: dict[str, Any] = field(default_factory=dict, init=False, repr=False, compare=False)

    def __getstate__(self) -> dict[str, Any]:
        """Without what belongs to one process."""
        names = ("algo", "aggregation", "plan", "rounds", "accountant", "study")
        return {name: getattr(self, name) for name in names} | {"rehearsed": {}, "_last": {}}

    @cached_property
    def digest(self) -> bytes:
        """32 bytes that all parties with these settings agree on. Later rounds may be added."""
        own = (self.study,) if self.study else ()
        return settings_digest(self.algo, self.aggregation, self.plan, *own)

    @cached_property
    def silos(self) -> tuple[str, ...]:
        """Names of all silos. All parties of a process share one tuple: ten thousand copies of ten
        thousand names would fill the memory."""
        return tuple(map(silo_name, range(self.plan.federation.n_silos)))

    @property
    def n_units(self) -> int:
        """Number of contributors."""
        return self.algo.contributors.number(self.plan.federation)

    @cached_property
    def cohort(self) -> int:
        """The fewest silos with which every query has its sum."""
        return max(one.n_summed for one in self.plan.query_parameters.values())

    def continues_with(self, n_silos: int) -> bool:
        """Whether rounds have a sum with this many silos."""
        return n_silos >= self.cohort or self.aggregation.continues_with(n_silos)

    def sized_for(self, present: tuple[str, ...]) -> tuple[str, ...]:
        """The silos that sums and noise shares are sized for: all of them, as long as those that
        are present are enough."""
        return self.silos if len(present) >= self.cohort else present

    def present_plan(self, present: tuple[str, ...]) -> Plan:
        """The plan for these silos. With fewer silos in a sum, each knows a larger share of its
        noise, and that is charged."""
        lost = self.plan.federation.n_silos - len(self.sized_for(present))
        parameters = {
            name: replace(
                one, n_invited=max(1, one.n_invited - lost), n_summed=max(1, one.n_summed - lost)
            )
            for name, one in self.plan.query_parameters.items()
        }
        return replace(self.plan, query_parameters=parameters) if lost else self.plan

    def fewest(self, lost: Collection[str]) -> tuple[str, ...]:
        """The fewest silos that earlier rounds may have had, in which the parties `lost` were
        lost."""
        names = self.silos
        left = tuple(name for name in names if name not in lost)
        continues = self.aggregation.continues_with
        for number in range(max(1, len(left)), len(names)):
            if continues(number):
                return (*left, *(name for name in names if name in lost))[:number]
        return names

    def require_set_up(self, party: str, task: SetUpTask) -> None:
        """Raise RefusedError for a round that the run does not have, and for silos with which it
        may not go on."""
        if type(task.round) is not int or not 1 <= task.round <= max(1, self.rounds):
            raise RefusedError(f"{party} refuses a set-up before round {task.round}")
        present = task.silos
        # Ten thousand parties of one process share the tuple, and need not compare all its names.
        if present is self.silos:
            return
        known = all(type(name) is str for name in present) and set(present) <= set(self.silos)
        some = known and len(set(present)) == len(present)
        if not (some and self.continues_with(len(present))):
            raise RefusedError(f"{party} refuses a set-up with {len(present)} silos")

    def query(self, party: str, task: QueryTask, present: tuple[str, ...], session: bytes) -> Query:
        """The query that a task names, as these settings define it.

        Raises RefusedError for a round, a place or repeats that no honest coordinator names.
        """
        whole = all(type(number) is int for number in (task.round, task.place, task.repeats))
        if not whole or not 1 <= task.round <= self.rounds:
            raise RefusedError(f"{party} refuses round {task.round}: the run has {self.rounds}")
        queries = self._queries(task.round, present)
        repeats = 0 if self.aggregation.never_repeats else task.repeats
        if not 0 <= task.place < len(queries) or repeats or not 0 <= task.repeats < 2**20:
            raise RefusedError(f"{party} refuses query {task.place} of round {task.round}")
        query = self.rehearsed.get((task.round, task.place), queries[task.place])
        return self._named(query, present, session, task.repeats)

    def _named(self, query: Query, present: tuple[str, ...], session: bytes, repeats: int) -> Query:
        """The addressed query of a session. The parties of one process share the last one."""
        last, *about = self._last.get("named", (None,))
        if last is not query or about[0] is not present or about[1:3] != [session, repeats]:
            named = self.addressed(query, present, session, repeats)
            about = [present, session, repeats, named]
            self._last["named"] = query, *about
        found: Query = about[3]
        return found

    def addressed(
        self, query: Query, present: tuple[str, ...], session: bytes, repeats: int
    ) -> Query:
        """The query for the silos that are present, with what its messages must match. Raises
        RefusedError if they are too few."""
        if len(present) < len(self.silos):
            here = frozenset(present)
            invited = tuple(silo for silo in query.invited if silo_name(silo) in here)
            if self.sized_for(present) is present:
                # Noise shares are then larger, so that the sum's noise stays what is charged.
                query = replace(query, invited=invited, n_summed=len(invited))
            elif len(invited) < query.n_summed:
                away = ", ".join(name for name in query.silos if name not in here)
                raise RefusedError(f"round {query.round} has no sum without {away}")
        exchange = Exchange(session, repeats, self._down(query), self.n_units)
        return replace(query, exchange=exchange)

    def charge(self, serial: Serial, present: tuple[str, ...], parts: bytes = b"") -> Charge:
        """What an answer to a query of the run costs, when these silos take part.

        parts: names the records whose batches and turns the events describe; equal charges of equal
            records are one object.
        """
        last, charge = self._last.get("charged", (None, None))
        if last != (serial, present, parts):
            round, place = serial
            charge = self._charge(
                self.algo.queries(round, self.present_plan(present))[place], parts
            )
            self._last["charged"] = (serial, present, parts), charge
        found: Charge = charge
        return found

    def _charge(self, query: Query, parts: bytes) -> Charge:
        observer = self.algo.headline_observer
        events = query.seen_by(observer)
        silos = {event.scope for event in events} <= {"", *self.silos}
        run = "" if silos else settings_digest(self.digest, parts).hex()
        charges: dict[tuple[Any, ...], Charge] = self._last.setdefault("charges", {})
        return charges.setdefault((events, run), Charge(observer, events, run))

    def asked(self, *, lasting: bool) -> Budget | None:
        """The run's limit as a budget of each silo; None: there is none.

        lasting: whether the silo adds up its answers over runs. The noise of a target was solved
            for one answer to each query, by the run's accountant: the budget is then what these
            answers cost by a filter, if that is more.
        """
        accountant = self.accountant
        limit = accountant.limit if lasting else accountant.budget
        if limit is None:
            return None
        budget = Budget(limit, accountant.delta, near=limit)
        if accountant.budget is not None:
            return budget
        planned = PlanCost(self.algo, self.plan).charges(0, self.rounds)
        return replace(budget, epsilon=max(limit, budget.spent(planned)))

    def epsilon(self, spent: Mapping[Charge, int], budget: Budget | None = None) -> float:
        """The certified epsilon of what was answered. The parties of one process share the last
        result.

        budget: adds up the answers of several runs, each chosen after the results of the earlier
            ones; None: they are of this run alone, and its accountant adds them up.
        """
        last, epsilon = self._last.get("spent", (None, 0.0))
        if last != (spent, budget):
            epsilon = self._own_epsilon(spent) if budget is None else budget.spent(spent)
            self._last["spent"] = (dict(spent), budget), epsilon
        found: float = epsilon
        return found

    def _own_epsilon(self, spent: Mapping[Charge, int]) -> float:
        ledger = Ledger(self.accountant)
        for charge, count in spent.items():
            ledger.record(charge.events, count)
        return headline(ledger.rows(0), self.algo.headline_observer)

    def _queries(self, round: int, present: tuple[str, ...]) -> tuple[Query, ...]:
        if self._last.get("round") != (round, present):
            plan = self.present_plan(present)
            self._last["queries"] = self.algo.queries(round, plan, charged=False)
            self._last["round"] = (round, present)
        queries: tuple[Query, ...] = self._last["queries"]
        return queries

    def _down(self, query: Query) -> tuple[tuple[str, tuple[int, ...]], ...]:
        """Names and shapes of what is sent down."""
        shapes: dict[tuple[str, int], Any] = self._last.setdefault("down", {})
        key = (query.name, query.place)
        if key not in shapes:
            start = self.algo.first_state(np.zeros(self.plan.federation.n_parameters), self.plan)
            vectors = self.algo.sent(start, query)
            shapes[key] = tuple((name, vector.shape) for name, vector in vectors.items())
        found: tuple[tuple[str, tuple[int, ...]], ...] = shapes[key]
        return found
