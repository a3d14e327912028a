"""The federation as a run has it: silos with their records, parties that live as long as the run,
and its rounds."""

from fedpriv.runtime.prepare import allocate, prepare, silo_states
from fedpriv.runtime.prepared_run import DivergedError, PreparedRun, RoundResult

__all__ = ["DivergedError", "PreparedRun", "RoundResult", "allocate", "prepare", "silo_states"]
