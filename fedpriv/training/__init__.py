"""Local training: every user of a silo gets a model of its own, and all of them train at once."""

from fedpriv.training.evaluate import evaluate, objective
from fedpriv.training.users import Block, LocalSgd, train_users
from fedpriv.training.vectors import flatten, load, unflatten

__all__ = ["Block", "LocalSgd", "evaluate", "flatten", "load", "objective", "train_users", "unflatten"]
