"""The runtime of a run: its silos with their records, its parties, and its rounds."""

from fedpriv.runtime.own_records import allocate
from fedpriv.runtime.prepare import prepare
from fedpriv.runtime.prepared_run import DivergedError, PreparedRun, RoundResult
from fedpriv.runtime.set_ups import StoppedError
from fedpriv.runtime.standing import silo_states

__all__ = [
    "DivergedError",
    "PreparedRun",
    "RoundResult",
    "StoppedError",
    "allocate",
    "prepare",
    "silo_states",
]
