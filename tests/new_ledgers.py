"""Ledgers for tests."""

from fedpriv.accountants.filters import Budget
from fedpriv.ledgers.data_ledger import DataLedger
from fedpriv.ledgers.entries import Population


def new_ledger(path, *names, epsilon, unit, overlap=()):
    """A new ledger of these populations, each with this budget at delta 1e-5."""
    budget = Budget(epsilon, 1e-5)
    populations = [Population(name, unit, budget) for name in names or ("patients",)]
    DataLedger.begin(path, path.stem, populations, overlap)
    return path
