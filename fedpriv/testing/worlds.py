"""Small experiments, composed and checked like those of a command, and neighbours of them that
differ in one unit."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np

from fedpriv.algorithms.base import Algorithm
from fedpriv.data.allocate import Allocator
from fedpriv.data.allocation import Allocation
from fedpriv.data.base import Corpus, DataSet, Records
from fedpriv.settings.compose import CommandLine, compose_jobs, without_hydra
from fedpriv.settings.experiment import Experiment, build
from fedpriv.settings.help import conf_dir
from fedpriv.util.streams import Streams

SMALL = (
    "preset.n_users=8",
    "preset.local_epochs=2",
    "preset.silo_epochs=2",
    "preset.batch_size=1000",
)
"""Eight users in three silos; batches hold all records, so that nothing depends on their order."""


def experiment(*words: str, algo: Algorithm | None = None) -> Experiment:
    """The experiment of a command line.

    algo: takes the place of the one that the words name, by its class and the values of its fields;
        without a clip bound among them it runs with mechanism=none unless the words say otherwise.

    Raises FedprivError as the command would.
    """
    named = any(word.startswith("mechanism=") for word in words)
    bare = algo is not None and not hasattr(algo, "clip") and not named
    [config] = compose_jobs(
        CommandLine.parse([*words, *(["mechanism=none"] if bare else [])]), conf_dir()
    )
    plain = without_hydra(config)
    if algo is not None:
        plain["algo"] = node(algo)
    return build(plain)


def node(component: Any) -> dict[str, Any]:
    """The configuration that builds this component."""
    cls = type(component)
    values = {
        field.name: getattr(component, field.name) for field in fields(component) if field.init
    }
    return {"_target_": f"{cls.__module__}.{cls.__qualname__}", **values}


@dataclass(frozen=True)
class _Without(Allocator):
    """`allocator` without the records of one user."""

    allocator: Allocator
    user: int

    def allocate(self, records: Records, data: DataSet, streams: Streams) -> Allocation:
        whole = self.allocator.allocate(records, data, streams)
        return replace(whole, trains=whole.trains & (whole.user != self.user))


def without_user(exp: Experiment, user: int) -> Experiment:
    """The neighbouring experiment in which `user` has no records."""
    own = exp.allocator
    return replace(exp, allocator=_Without(own.n_users, own.n_silos, own, user))


def with_training_records(exp: Experiment, change: Callable[[Records], Records]) -> Experiment:
    """The experiment whose training records went through `change`."""
    base = type(exp.data)

    class Changed(base):  # type: ignore[misc, valid-type]
        def load(self, streams: Streams) -> Corpus:
            corpus = base.load(self, streams)
            return Corpus(change(corpus.train), corpus.test)

    return replace(
        exp,
        data=Changed(**{field.name: getattr(exp.data, field.name) for field in fields(exp.data)}),
    )


def without_rows(exp: Experiment, rows: np.ndarray) -> Experiment:
    """The neighbouring experiment in which training records `rows` (k,) count as absent, while how
    many there are stays public: their features are not numbers, so that they have no gradient and
    contribute nothing."""

    def blank(records: Records) -> Records:
        x = np.array(records.x)
        x[rows] = np.nan
        return replace(records, x=x)

    return with_training_records(exp, blank)


def with_flipped_record(exp: Experiment, row: int) -> Experiment:
    """The neighbouring experiment in which training record `row` has the other one of two
    labels.
    """

    def flip(records: Records) -> Records:
        y = np.array(records.y)
        y[row] = 1 - y[row]
        return replace(records, y=y)

    return with_training_records(exp, flip)
