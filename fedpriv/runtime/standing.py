"""Where a run stands between two exchanges, and how a checkpoint holds it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from fedpriv.errors import FedprivError
from fedpriv.parties.post import Serial
from fedpriv.rounds.query import SiloState

SILO = "silo/"
"""Prefix of a silo's arrays in a checkpoint."""
FAILED = "failed"
"""Name of an array in a checkpoint: round and place of the last query, if it had no sum, and the
number of queries in a row without one."""


@dataclass
class Standing:
    """What the exchanges so far have left.

    silo_states: states of the silos after the last round, by name.
    aborted: round and place of the last query, if it had no sum.
    failures: number of queries in a row without a sum.
    failures_since: number of those since the last set-up.
    ready: whether a set-up has ended since the last mismatch of keys, at all silos that it asked.
    session_name: 16 bytes that identify all messages since that set-up.
    set_ups: number of set-ups so far.
    set_up_round: the round before which the last one was.
    agreed_digest: digest of the state that all silos are known to hold; None: unknown, or a helper
        holds the state.
    absent: silos that the last set-up has left out.
    faults: by silo: what it did since the last set-up that no honest one does, in a line.
    losses: round: parties that were lost in it, and why; those of the first set-up are in round 0.
        Who writes them down empties it.
    """

    silo_states: dict[str, SiloState] = field(default_factory=dict)
    aborted: Serial | None = None
    failures: int = 0
    failures_since: int = 0
    ready: bool = False
    session_name: bytes = b""
    set_ups: int = 0
    set_up_round: int = 0
    agreed_digest: bytes | None = None
    absent: frozenset[str] = frozenset()
    faults: dict[str, str] = field(default_factory=dict)
    losses: dict[int, dict[str, str]] = field(default_factory=dict)

    def arrays(self) -> dict[str, np.ndarray]:
        """What a checkpoint holds of it; `restored` reads it."""
        states = self.silo_states.items()
        found = {f"{SILO}{silo}/{key}": value for silo, own in states for key, value in own.items()}
        if self.aborted is not None:
            found[FAILED] = np.array([*self.aborted, self.failures])
        return found

    @staticmethod
    def restored(checkpoint: Mapping[str, np.ndarray], silos: tuple[str, ...]) -> Standing:
        """From the arrays of a checkpoint. Raises FedprivError for one that no run with these
        silos has written."""
        states = silo_states(checkpoint)
        if strangers := sorted(states.keys() - set(silos)):
            raise _misfit(f"there is no {strangers[0]}")
        if FAILED not in checkpoint:
            return Standing(states)
        failed = checkpoint[FAILED]
        if failed.shape != (3,) or failed.dtype.kind != "i":
            raise _misfit(f"{FAILED} is no three counts")
        round, place, failures = map(int, failed)
        return Standing(states, (round, place), failures)


def silo_states(checkpoint: Mapping[str, np.ndarray]) -> dict[str, SiloState]:
    """The state of each silo in a checkpoint, by the silo's name."""
    states: dict[str, dict[str, np.ndarray]] = {}
    for place, value in checkpoint.items():
        if place.startswith(SILO):
            silo, _, key = place.removeprefix(SILO).partition("/")
            states.setdefault(silo, {})[key] = value
    return dict(states)


def require_fits(checkpoint: Mapping[str, np.ndarray], initial: Mapping[str, np.ndarray]) -> None:
    """Raise FedprivError unless a checkpoint has arrays like those of the initial state."""
    for name, expected in initial.items():
        found = checkpoint.get(name)
        if found is None or (found.shape, found.dtype) != (expected.shape, expected.dtype):
            described = "nothing" if found is None else f"{found.dtype} of shape {found.shape}"
            raise _misfit(f"{name} is {described}, not {expected.dtype} of shape {expected.shape}")


def _misfit(why: str) -> FedprivError:
    return FedprivError(f"the checkpoint does not fit the settings: {why}")
