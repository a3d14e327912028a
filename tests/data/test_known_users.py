"""Known users stay users: patients of a table are never spread over drawn users unasked."""

import json
from dataclasses import dataclass, replace

import numpy as np
import pytest
from refusals import refused
from runs import experiment

from fedpriv import api
from fedpriv.data.allocate import INVENTED, Allocation, Allocator, ByUser, require_kept
from fedpriv.data.base import Corpus, DataSet, Records
from fedpriv.data.heart_disease import HeartDisease
from fedpriv.data.random_allocators import Dirichlet, Equal, Uniform, Zipf
from fedpriv.errors import ConfigError
from fedpriv.models.tasks import Classification
from fedpriv.runtime import allocate
from fedpriv.util.streams import Streams

PATIENTS, HOSPITALS = 60, 3


@dataclass(frozen=True)
class Hospitals(DataSet):
    """A table as the guide has it: the records name patient and hospital, and the class says
    nothing of it."""

    shape = (2,)
    outputs = 2

    task = Classification()

    def load(self, streams):
        user = np.repeat(np.arange(PATIENTS), 8)
        x = np.random.default_rng(0).normal(size=(len(user), 2)).astype(np.float32)
        y = (x[:, 0] > 0).astype(np.int64)
        return Corpus(Records(x, y, user % HOSPITALS, user), Records(x[:50], y[:50]))


@dataclass(frozen=True)
class KnownHospitals(Hospitals):
    """The same, and the class says that users and silos are known."""

    natural_users = True
    natural_silos = HOSPITALS


@dataclass(frozen=True)
class Writers(Hospitals):
    """Records of known users in no silo."""

    natural_users = True

    def load(self, streams):
        corpus = super().load(streams)
        return replace(corpus, train=replace(corpus.train, silo=None))


@dataclass(frozen=True)
class Careless(Allocator):
    """An author's allocator that never looks at the users of the records."""

    def allocate(self, records, data, streams):
        user = np.arange(len(records)) % self.n_users
        silo = np.arange(len(records)) % self.n_silos if records.silo is None else records.silo
        return Allocation(user, silo, np.ones(len(user), bool), self.n_users, self.n_silos)


DRAWING = [
    Uniform(20, 3),
    Zipf(20, 3),
    Uniform(20, 3, labels_per_user=1),
    Dirichlet(20, 3),
    Equal(3, 3),
]


@pytest.mark.parametrize("allocator", DRAWING, ids=lambda allocator: type(allocator).__name__)
def test_users_are_not_drawn_over_known_ones(allocator):
    start = "allocator.invent_users=false: true for a simulation"
    refused(lambda: allocator.check(Writers()), "allocator=by_user", start=start)
    replace(allocator, invent_users=True).check(Writers())


@dataclass(frozen=True)
class SilentAboutSilos(Hospitals):
    natural_users = True


@pytest.mark.parametrize(
    ("data", "allocator", "why"),
    [
        *((data, Careless(20, 3), "invent_users") for data in (Hospitals(), KnownHospitals())),
        (Writers(), Careless(20, 3), "invent_users"),
        (Hospitals(), Zipf(20, 3), "invent_users"),
        (Hospitals(), Uniform(20, 3), "invent_users"),
        (SilentAboutSilos(), ByUser(PATIENTS, HOSPITALS), "keeps the silos"),
    ],
)
def test_what_records_name_counts_where_a_class_or_an_allocator_is_silent(data, allocator, why):
    with pytest.raises(ConfigError, match=why):
        allocate(replace(experiment(), data=data, allocator=allocator))


@pytest.mark.parametrize("merged", [False, True])
def test_users_are_neither_split_nor_merged_and_known_silos_stay(merged):
    data = Hospitals()
    records = data.load(Streams(0)).train
    user = records.user // 2 if merged else records.user * 2 + np.arange(len(records)) % 2
    trains = np.ones(len(user), bool)
    allocation = Allocation(user, records.silo, trains, int(user.max()) + 1, HOSPITALS)
    with pytest.raises(ConfigError, match="invent_users"):
        require_kept(allocation, records, data, invents=False)
    require_kept(allocation, records, data, invents=True)
    require_kept(replace(allocation, user=PATIENTS - 1 - records.user), records, data, False)
    elsewhere = replace(allocation, silo=np.arange(len(records)) % 3)
    with pytest.raises(ConfigError, match="keeps the silos"):
        require_kept(elsewhere, records, data, invents=True)


@pytest.mark.parametrize(("allocator", "valid"), [("uniform", False), ("natural", True)])
def test_a_run_with_invented_users_says_so(allocator, valid, small_root, tmp_path):
    n_users = len(HeartDisease(small_root).load(Streams(0)).train) if valid else 10
    api.run(
        "data=heart_disease",
        f"data.root={small_root}",
        f"allocator={allocator}",
        f"allocator.n_users={n_users}",
        "rounds=1",
        "randomness=system",
        "preset.local_epochs=1",
        folder=tmp_path / "run",
    )
    status = json.loads((tmp_path / "run" / "status.json").read_text())
    assert status["dp_valid"] is valid
    assert (INVENTED in status["not_covered"]) is not valid
