"""The records of a run: those of all silos in this process, those of one organisation, or none.

The coordinator of a study holds no records: its plan comes from what the study publishes. The plan
of a process with all records comes from them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from fedpriv.data.allocate import Allocation, require_kept
from fedpriv.data.base import Corpus, Records
from fedpriv.data.shared import digest_allocation, load
from fedpriv.data.stability import UNSTATED, UNSTATED_CHOICE
from fedpriv.errors import DataError, FedprivError, require
from fedpriv.parties.party import silo_name
from fedpriv.rounds.plan import Federation
from fedpriv.util.installed import others

if TYPE_CHECKING:
    from fedpriv.algorithms.base import Algorithm
    from fedpriv.data.base import DataSet
    from fedpriv.data.silo import SiloData
    from fedpriv.engines.study import Study
    from fedpriv.settings.experiment import Experiment


NO_TESTS = Records(np.empty(0), np.empty(0))


@dataclass(frozen=True)
class OwnRecords:
    """What a process knows of the records, and those that it holds.

    federation: public numbers of the federation.
    source, records, allocation: digests (`fedpriv.runtime.identity.RunIdentity`), without the key.
    silos: training records of each silo; empty: they are elsewhere.
    test: central test records; there may be none here.
    held_out: records that silos hold back for tests; None: there are none.
    parts: parts of the central test records by name, (n,) bool each.
    notes: how the records were read, in lines for the person who runs it.
    encoding: how rows of a table became features; None: records are arrays, or elsewhere.
    """

    federation: Federation
    source: str
    records: str
    allocation: str
    silos: list[SiloData] = field(default_factory=list)
    test: Records = NO_TESTS
    held_out: Records | None = None
    parts: Mapping[str, np.ndarray] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    encoding: Any = None


def records_of(exp: Experiment) -> OwnRecords:
    """What this process holds: all records, or none if a study leaves them to organisations."""
    study = exp.engine.published
    return _everything(exp) if study is None else _nothing(exp, study)


def _everything(exp: Experiment) -> OwnRecords:
    from fedpriv.data.silo import split_by_silo

    loaded = load(exp.data, exp.streams)
    corpus = loaded.corpus
    allocation, federation = _allocated(exp, corpus)
    held_out = None
    if not allocation.trains.all():
        rows = ~allocation.trains
        held_out = Records(corpus.train.x[rows], corpus.train.y[rows], allocation.silo[rows])
    home = home_silos(corpus.test, allocation)
    names = [f"silo {one}" for one in exp.data.silo_names]
    names = names or [*map(silo_name, range(allocation.n_silos))]
    by_silo = {} if home is None else {name: home == place for place, name in enumerate(names)}
    return OwnRecords(
        federation,
        loaded.source,
        loaded.records,
        digest_allocation(allocation),
        split_by_silo(corpus.train, allocation, "cpu"),
        replace(corpus.test, silo=home),
        held_out,
        by_silo | dict(corpus.groups),
        (*exp.data.summary, *corpus.notes),
        corpus.encoding,
    )


def _nothing(exp: Experiment, study: Study) -> OwnRecords:
    digest = study.digest.hex()
    return OwnRecords(published_federation(exp, study), digest, digest, digest)


def published_federation(exp: Experiment, study: Study) -> Federation:
    """The public numbers of a study's federation. Raises FedprivError for a study that contradicts
    its schema, and ConfigError for settings that need more than it publishes."""
    exp.data.of_site(None)
    sized = bool(study.records) or not exp.algo.contributors.needs_sizes
    needed = f"one that needs no numbers of records; or write them into {study.path} (records)"
    require(sized, "algo", type(exp.algo).__name__, needed)
    names = exp.data.silo_names
    for key, numbers in (("users", study.users), ("records", study.records)):
        if (numbers and tuple(numbers) != names) or not study.users:
            raise FedprivError(f"{study.path}: {key} does not name {', '.join(names)}, in order")
    federation = exp.federation
    if sum(study.users.values()) != federation.n_users:
        raise FedprivError(
            f"{study.path}: users has {sum(study.users.values())} in all, and the schema "
            f"{federation.n_users}"
        )
    require(not exp.allocator.invents_users, "allocator", type(exp.allocator).__name__, "natural")
    return replace(federation, silo_records=tuple(study.records.values()))


def site_records(exp: Experiment, study: Study, name: str, path: str) -> SiloData:
    """The training records of one organisation, in its own file.

    exp: the study's experiment.
    name: of its silo in the schema.
    path: of its table.

    Raises FedprivError for records that do not fit what the study publishes.
    """
    from fedpriv.data.silo import split_by_silo

    data = exp.data.of_site(path)
    index = exp.data.silo_names.index(name)
    train = load(data, exp.streams).corpus.train
    if train.silo is None or train.user is None or (train.silo != index).any():
        raise DataError(f"{path}: has records of another silo than {name}")
    if int(train.user.max()) >= study.users[name]:
        raise DataError(
            f"{path}: more users than the {study.users[name]} that {study.path} gives {name}"
        )
    given = Allocation(
        train.user + study.first_user(index),
        np.zeros(len(train), dtype=np.int64),
        np.ones(len(train), dtype=bool),
        exp.allocator.n_users,
        1,
        stability=exp.allocator.stability(data),
    )
    allocation = _chosen(exp.algo, given, data)
    fits = allocation.stability == given.stability and allocation.records_per_user is None
    whole = "one that trains on all records of an organisation"
    require(fits, "algo", type(exp.algo).__name__, whole)
    held = int(allocation.trains.sum())
    if study.records and held != study.records[name]:
        raise DataError(f"{path}: {held} training records, and {study.path} says otherwise")
    return split_by_silo(train, allocation, "cpu")[0]


def allocate(exp: Experiment) -> tuple[Corpus, Allocation, Federation]:
    """Load the data, assign records to users and silos, and let the algorithm choose its training
    records. Needs no torch."""
    corpus = load(exp.data, exp.streams).corpus
    return corpus, *_allocated(exp, corpus)


def _allocated(exp: Experiment, corpus: Corpus) -> tuple[Allocation, Federation]:
    given = exp.allocator.allocate(corpus.train, exp.data, exp.streams)
    require_kept(given, corpus.train, exp.data, exp.allocator.invents_users)
    allocation = _chosen(exp.algo, given, exp.data)
    authors = () if given.stability == UNSTATED else others(exp.allocator)
    if allocation.stability != given.stability:
        authors += others(exp.algo)
    sizes = tuple(int(count) for count in allocation.silo_sizes())
    bound = allocation.records_per_user
    federation = replace(
        exp.federation,
        silo_records=sizes,
        records_per_user=bound,
        stability=allocation.stability,
        authors=authors,
    )
    return allocation, federation


def _chosen(algo: Algorithm, allocation: Allocation, data: DataSet) -> Allocation:
    """What the algorithm trains on. Where it leaves records out or moves them and no stage says how
    stable that is, nothing is certified."""
    chosen = algo.training_records(allocation, data)
    before = allocation.stability
    same = all(
        np.array_equal(getattr(chosen, name), getattr(allocation, name))
        for name in ("user", "silo", "trains")
    )
    grown = chosen.stability.stages[: len(before.stages)] == before.stages
    stated = same or len(chosen.stability.stages) > len(before.stages)
    if grown and stated:
        return chosen
    return replace(chosen, stability=before.then(UNSTATED_CHOICE))


def home_silos(test: Records, allocation: Allocation) -> np.ndarray | None:
    """The silo of each central test record, (n,) int64, -1 for an owner who does not train. None if
    owners are unknown, or one has records in several silos."""
    if test.user is None:
        return test.silo
    home = np.full(allocation.n_users, -1)
    home[allocation.user] = allocation.silo
    return home[test.user] if (home[allocation.user] == allocation.silo).all() else None
