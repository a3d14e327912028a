"""The set-ups of a run: which parties take part, and when silos that were lost or silent come back.

Absence is normal. A set-up is made again when a party was lost, and leaves out silos that do not
answer if the others are enough for a sum (`RunSettings.continues_with`). They are asked again
later, and take part again once they answer.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from typing import Any

from fedpriv.engines.base import Session
from fedpriv.errors import AggregationAbortedError, FedprivError, FedprivWarning, SilenceError
from fedpriv.parties.traffic import Traffic
from fedpriv.rounds.query import SetUpTask, next_session
from fedpriv.rounds.state import State
from fedpriv.runtime.run_settings import RunSettings
from fedpriv.runtime.standing import Standing
from fedpriv.util.logs import LOGGER

AGAIN = 8
"""Rounds after which silos that a set-up has left out are asked again."""
TRIES = 4
"""Tries to have all parties ready that a round needs, before the run stops."""


class StoppedError(FedprivError):
    """A round cannot begin, since a party is missing that the aggregation needs."""


class SetUps:
    """The set-ups of a `PreparedRun`, which says what its attributes are."""

    settings: RunSettings
    session: Session
    state: State
    standing: Standing

    @property
    def silos(self) -> tuple[str, ...]:
        """The names of the silos that take part."""
        names = self.settings.silos
        return (
            tuple(name for name in names if name not in self.standing.absent)
            if self.standing.absent
            else names
        )

    @property
    def uncounted(self) -> frozenset[str]:
        """The silos without which noise shares are sized."""
        return frozenset(self.settings.silos).difference(self.settings.sized_for(self.silos))

    @property
    def peers(self) -> bool:
        """Whether the aggregation has no helper. Every silo then holds the state."""
        return not self.settings.aggregation.helpers

    def silos_hold(self, state: State) -> bool:
        """Whether every silo holds this state. Always true if a helper holds the state."""
        return not self.peers or self.standing.agreed_digest == state.digest()

    def set_up(self, round: int, lines: list[dict[str, Any]], state: State | None = None) -> None:
        """Run `_set_up` until it succeeds, with all silos.

        A silo that was at fault, or does not answer in two set-ups, is left out until the next one,
        if those that are left are enough for a sum. Raises AggregationAbortedError if they are not,
        or if another party is missing.
        """
        standing = self.standing
        before = standing.absent
        told, standing.faults = standing.faults, {}
        goes_on = self.settings.continues_with(len(self.settings.silos) - len(told))
        standing.absent = frozenset(told) if goes_on else frozenset()
        if before and self._stateful(max(1, round)):
            # They may have stored something of a query whose sum was undone meanwhile.
            self._reopen(before)
        silent = set(before)
        while True:  # ends: each failed set-up adds to `silent` or leaves a silo out
            try:
                self._set_up(round, lines, state)
                break
            except SilenceError as silence:
                told |= {name: str(why) for name, why in self.session.refusals.items()}
                left = len(set(self.silos) - silence.names)
                if (
                    not silence.names
                    or not silence.names <= set(self.silos)
                    or not self.settings.continues_with(left)
                ):
                    raise
                standing.absent |= silence.names & silent
                silent |= silence.names
        standing.set_up_round = round
        standing.failures_since = 0
        if new := sorted(standing.absent - before):
            why = "; ".join(told[name] for name in new if name in told)
            why = why or "no answer in two set-ups"
            message = f"round {round}: continuing without {', '.join(new)}: {why}"
            warnings.warn(message, FedprivWarning, stacklevel=2)
        if back := sorted(before - standing.absent):
            LOGGER.info("round %d: %s is back", round, ", ".join(back))

    def _stateful(self, round: int) -> bool:
        queries = self.settings.algo.queries(round, self.settings.plan)
        return any(query.asked.stateful for query in queries)

    def _reopen(self, names: Iterable[str]) -> None:
        """Start these parties from their last checkpoints, without their keys."""
        self.session.reopen({name: self.standing.silo_states.get(name, {}) for name in names})

    def _set_up(self, round: int, lines: list[dict[str, Any]], state: State | None) -> None:
        """Run the aggregation's set-up with all parties, and add its traffic to `lines`.

        state: state that silos continue from if they hold it; None: the first state of this run.

        Lost parties restart. A set-up that ends early leaves some parties with old keys and others
        with new ones, so no query may begin before a set-up has ended. Raises
        AggregationAbortedError if a party is missing.
        """
        self.standing.ready = False
        self.standing.agreed_digest = None
        traffic = Traffic()
        self.standing.session_name = next_session(self.standing.session_name)
        self.standing.set_ups += 1
        state = state or self.state
        arrays = state.arrays() if self.peers else None
        task = SetUpTask(
            self.standing.session_name, self.silos, arrays, self.standing.aborted, max(1, round)
        )
        self._reopen(self.session.lost - self.standing.absent)
        parties = [*self.settings.aggregation.helpers, *self.silos]
        try:
            enrolled = self.session.run(dict.fromkeys(parties, task), traffic)
        finally:
            lines += traffic.rows(round, "setup")
            self._note_losses(round)
        missing = self.session.lost - self.standing.absent
        if not missing:
            missing = frozenset(name for name in self.silos if enrolled.get(name) is not True)
        if missing:
            why = "; ".join(map(str, self.session.refusals.values()))
            lost = f"the set-up has lost {', '.join(sorted(missing))}"
            raise SilenceError(f"{lost}{why and f' ({why})'}", missing)
        self.standing.ready = True
        self.standing.agreed_digest = state.digest() if self.peers else None

    def enrol(self, round: int, lines: list[dict[str, Any]], state: State) -> None:
        """Make the set-up that is due before a query of this round, if any: when a party was lost,
        keys may not match, or silos that were left out may be back.

        Silos that were left out are asked again after `AGAIN` rounds, and as soon as a query has no
        sum. So is everybody after a second one: a silo may have restarted unseen.
        """
        standing = self.standing
        again = standing.failures_since or round >= standing.set_up_round + AGAIN
        if (
            not standing.ready
            or standing.failures_since > 1
            or (standing.absent and again)
            or self.session.lost - standing.absent
            or not self.silos_hold(state)
        ):
            self.set_up(round, lines, state)

    def gather(self, round: int, lines: list[dict[str, Any]], state: State) -> None:
        """As `enrol`, before the round is charged. Raises StoppedError after `TRIES` tries: the
        aggregation cannot go on without who is missing."""
        for left in reversed(range(TRIES)):
            try:
                self.enrol(round, lines, state)
                break
            except AggregationAbortedError as abort:
                if left == 0:
                    least = self.settings.aggregation.fewest or self.settings.cohort
                    needed = f"a sum needs {least} of {len(self.settings.silos)} silos"
                    raise StoppedError(
                        f"round {round} cannot begin: {abort}; {TRIES} tries ({needed})"
                    ) from abort

    def _note_losses(self, round: int) -> None:
        """Note the parties that have been lost since the last set-up began, that refuse, or that
        are at fault."""
        lost = sorted(self.session.lost - self.standing.absent)
        gone = {name: self.session.why_lost(name) for name in lost} | self.standing.faults
        gone |= {name: str(refusal) for name, refusal in self.session.refusals.items()}
        if gone:
            self.standing.losses.setdefault(round, {}).update(gone)
