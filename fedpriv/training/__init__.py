"""Local training: every user of a silo gets a model of its own, and all of them train at once."""

from fedpriv.training.evaluate import evaluate
from fedpriv.training.users import Block, LocalSgd, train_users
from fedpriv.training.vectors import flatten, load, unflatten

__all__ = ["Block", "LocalSgd", "evaluate", "flatten", "load", "train_users", "unflatten"]
