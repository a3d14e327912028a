"""The federation as a run has it: silos with their records, parties that live as long as the run, and its rounds."""

from fedpriv.simulation.prepare import allocate, prepare, silo_states
from fedpriv.simulation.rounds import DivergedError, RoundResult, Simulation

__all__ = ["DivergedError", "RoundResult", "Simulation", "allocate", "prepare", "silo_states"]
