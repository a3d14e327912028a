"""Each stage's stability, measured: the same stage runs on two neighbouring tables, and what
differs behind it is counted and compared with what it declares."""

import math
from dataclasses import dataclass, fields, replace
from pathlib import Path

import numpy as np
import pytest
from runs import experiment

from fedpriv import testing
from fedpriv.algorithms.uldp import UldpSgd
from fedpriv.data.allocate import Allocation, ByUser, Natural
from fedpriv.data.base import Corpus, DataSet, Records
from fedpriv.data.creditcard import CreditCard
from fedpriv.data.dealing import hold_out
from fedpriv.data.flags import group_size, select
from fedpriv.data.random_allocators import Dirichlet, Uniform, Zipf
from fedpriv.data.stability import (
    ADD_REMOVE,
    CHANGED,
    DRAWN_BY_LABEL,
    DRAWN_BY_PLACE,
    LOADED,
    OWN_COINS,
    OWN_USERS,
    READING,
    REPLACE,
    ROWS,
    UNSTATED,
    USERS,
    Distance,
    Stability,
    truncation,
)
from fedpriv.models.tasks import Classification
from fedpriv.runs.epsilon_forecast import EpsilonForecast
from fedpriv.runtime import allocate
from fedpriv.util.streams import Streams

N, USERS_OF_TABLE, SILOS = 240, 24, 3


@dataclass(frozen=True)
class Line:
    """A line of the file: who owns the record, which hospital wrote it, and what it says."""

    id: int
    user: int
    silo: int
    value: float
    label: int


def table(seed=0):
    """Lines in random order; users have 1 to 20 records or so, in any silos, the last one a few."""
    rng = np.random.default_rng(seed)
    everybody = [*range(USERS_OF_TABLE), *[USERS_OF_TABLE - 1] * 4]
    user = np.concatenate([everybody, rng.integers(0, 12, N - len(everybody))])
    rng.shuffle(user)
    return [
        Line(i, int(u), int(rng.integers(SILOS)), float(rng.normal()), int(rng.integers(4)))
        for i, u in enumerate(user)
    ]


def write(path, lines):
    path.write_text("\n".join(f"{a.id},{a.user},{a.silo},{a.value},{a.label}" for a in lines))


@dataclass(frozen=True)
class Table(DataSet):
    """The file as a data set."""

    shape = (1,)
    outputs = 4
    natural_users = True
    natural_silos = SILOS

    task = Classification()

    def load(self, streams):
        cells = np.loadtxt(self.root, delimiter=",", ndmin=2)
        x = cells[:, [3, 0]].astype(np.float32)  # the line's number goes along, to find it again
        user, silo, y = (cells[:, at].astype(np.int64) for at in (1, 2, 4))
        records = Records(x, y, silo, user)
        return Corpus(records, records)


@dataclass(frozen=True)
class Unplaced(Table):
    """The same without silos."""

    natural_silos = None

    def load(self, streams):
        records = replace(super().load(streams).train, silo=None)
        return Corpus(records, records)


@dataclass(frozen=True)
class Anonymous(Unplaced):
    """The same without users."""

    natural_users = False

    def load(self, streams):
        records = replace(super().load(streams).train, user=None)
        return Corpus(records, records)


def neighbours(lines, relation, victim):
    """The other table: without a user or a record, or with other content of a record."""
    if relation == USERS:
        return [line for line in lines if line.user != victim]
    if relation == ROWS:
        return [line for line in lines if line.id != victim]
    return [replace(line, value=-9.0) if line.id == victim else line for line in lines]


def victims(relation):
    """Who differs; the last user stays, because the number of users is public."""
    return range(USERS_OF_TABLE - 1) if relation == USERS else range(0, N, 2)


def training_rows(data, allocation):
    """What trains: {line: (user, silo, content)}."""
    records = data.load(Streams(0)).train
    rows = np.flatnonzero(allocation.trains)
    return {
        int(records.x[i, 1]): (int(allocation.user[i]), int(allocation.silo[i]), float(v))
        for i in rows
        for v in [records.x[i, 0]]
    }


def distance(one, other):
    """Users and records that differ between two worlds, and whether records come in."""
    lines = {i for i in one.keys() | other.keys() if one.get(i) != other.get(i)}
    users = {world[i][0] for world in (one, other) for i in lines if i in world}
    return Distance(len(users), len(lines), bool(other.keys() - one.keys()))


def measured(tmp_path, run, relation):
    """The largest distances behind a stage, over many victims. run: file -> rows that train."""
    lines = table()
    file, other = tmp_path / "one.csv", tmp_path / "other.csv"
    write(file, lines)
    here = run(file)
    found = []
    for victim in victims(relation):
        write(other, neighbours(lines, relation, victim))
        found.append(distance(here, run(other)))
    return Distance(
        max(d.users for d in found), max(d.rows for d in found), any(d.swaps for d in found)
    )


def allocated(data, allocator, truncate=lambda allocation: allocation):
    """File -> rows that train, by an allocator."""

    def run(file):
        own = data(str(file))
        allocation = allocator.allocate(own.load(Streams(0)).train, own, Streams(0))
        return training_rows(own, truncate(allocation))

    return run


def natural(truncate=lambda allocation: allocation):
    return allocated(Table, Natural(USERS_OF_TABLE, SILOS), truncate)


def at_most(rule, group=1):
    """Truncation to k records; max and median look at the table."""

    def truncate(allocation):
        k = group_size(rule, allocation.counts())
        return select(allocation, k, group, rule)

    return truncate


UNITS = {USERS: ("user", ADD_REMOVE), ROWS: ("record", ADD_REMOVE), CHANGED: ("record", REPLACE)}


@pytest.mark.parametrize("relation", UNITS)
def test_own_users_move_nobody_elses_records(relation, tmp_path):
    found = measured(tmp_path, natural(), relation)
    declared = Stability(LOADED).then(OWN_USERS).of(*UNITS[relation])
    assert found.users == declared.users == 1
    assert found.rows <= declared.rows
    if relation != USERS:
        assert found.rows == declared.rows == 1


@pytest.mark.parametrize("relation", UNITS)
@pytest.mark.parametrize("k", [1, 6, 50])
def test_no_k_moves_more_than_declared(k, relation, tmp_path):
    """With k = 6 one record out lets another of the same user in: two records differ, not one."""
    found = measured(tmp_path, natural(at_most(k)), relation)
    declared = Stability(LOADED).then(OWN_USERS).then(truncation(k)).of(*UNITS[relation])
    assert found.users <= declared.users
    assert found.rows <= declared.rows
    assert found.swaps <= declared.swaps
    if k == 6:
        assert found == replace(declared, why="")
        assert found.rows == {USERS: 6, ROWS: 2, CHANGED: 1}[relation]


def test_a_median_k_moves_records_of_others(tmp_path):
    """A k that is read off the users' counts changes with one record, for everybody."""
    moved = measured(tmp_path, natural(at_most("median")), ROWS)
    assert moved.users > 1
    assert moved.rows > 10
    for rule in ("median", "max"):
        for unit, adjacency in UNITS.values():
            declared = Stability(LOADED).then(OWN_USERS).then(truncation(rule)).of(unit, adjacency)
            assert not declared.finite
            assert f"k={rule} is read off" in declared.why


def test_truncation_in_pairs_shifts_several_records(tmp_path):
    """The pairs of a user shift; what differs is still this user's alone."""
    run = natural(at_most(10, group=2))
    declared = Stability(LOADED).then(truncation(10, group=2))
    found = measured(tmp_path, run, ROWS)
    assert found.users == 1
    assert 2 < found.rows <= declared.of("record", ADD_REMOVE).rows == 20
    assert measured(tmp_path, run, USERS).rows <= declared.of("user", ADD_REMOVE).rows == 10


HOLDING_OUT = ByUser(USERS_OF_TABLE, SILOS, local_test=0.3)


@pytest.mark.parametrize("relation", UNITS)
def test_each_users_local_test_is_its_own(relation, tmp_path):
    found = measured(tmp_path, allocated(Unplaced, HOLDING_OUT), relation)
    declared = HOLDING_OUT.stability(Unplaced()).of(*UNITS[relation])
    assert found.users == declared.users == 1
    assert found.rows <= declared.rows
    if relation == ROWS:
        assert found.rows > 2
        assert declared.rows == math.inf
        assert "all of the user's records" in declared.why


def test_truncation_bounds_what_a_users_local_test_moves(tmp_path):
    found = measured(tmp_path, allocated(Unplaced, HOLDING_OUT, at_most(6)), ROWS)
    declared = HOLDING_OUT.stability(Unplaced()).then(truncation(6)).of("record", ADD_REMOVE)
    assert declared == Distance(1, 12, swaps=True)
    assert found.users == 1
    assert 2 < found.rows <= 12


def coins(n):
    return Streams(0).generator("local test").random(n)


@pytest.mark.parametrize("relation", UNITS)
def test_a_large_silos_local_test_moves_no_other_record(relation):
    """Sizes are public; which records are held out then depends on each record alone."""
    lines = table()
    sizes = np.bincount([line.silo for line in lines])

    def run(present):
        places = np.array([line.id for line in present])
        silo = np.array([line.silo for line in present])
        trains = hold_out(silo, coins(N)[places], test=0.3, above=20, sizes=sizes)
        return {
            line.id: (line.user, line.silo, line.value)
            for line, kept in zip(present, trains)
            if kept
        }

    found = [
        distance(run(lines), run(neighbours(lines, relation, victim)))
        for victim in victims(relation)
    ]
    own = Stability(LOADED).then(OWN_COINS).of(*UNITS[relation])
    assert max(d.users for d in found) == own.users == 1
    assert max(d.rows for d in found) <= own.rows
    assert not any(d.swaps for d in found)
    assert relation == USERS or max(d.rows for d in found) == 1 == own.rows


@pytest.mark.parametrize(
    ("allocator", "stage"),
    [
        (Uniform(20, SILOS), DRAWN_BY_PLACE),
        (Zipf(20, SILOS), DRAWN_BY_PLACE),
        (Uniform(20, SILOS, labels_per_user=2), DRAWN_BY_LABEL),
        (Dirichlet(20, SILOS), DRAWN_BY_LABEL),
    ],
    ids=lambda value: getattr(value, "name", type(value).__name__),
)
def test_drawn_owners_have_no_neighbours_in_the_file(allocator, stage, tmp_path):
    """One record absent from the file gives other owners to many; so neighbours begin behind the
    draw."""

    run = allocated(Anonymous, allocator)
    assert measured(tmp_path, run, ROWS).rows > 20
    chain = allocator.stability(Anonymous())
    assert stage in chain.before
    for unit, adjacency in UNITS.values():
        assert chain.of(unit, adjacency).users == 1
        assert not chain.from_file(unit, adjacency).finite
    assert "drawn users" in chain.assumptions[0]
    if stage is DRAWN_BY_PLACE:
        assert measured(tmp_path, run, CHANGED).rows == stage.changed(Distance(1, 1)).rows == 1


def test_scaling_by_statistics_changes_everybody(small_root, tmp_path):
    """A record absent from creditcard.csv changes the features of the others, and the split; both
    are public by assumption."""
    content = Path(f"{small_root}/creditcard/creditcard.csv").read_text().splitlines()
    (tmp_path / "creditcard.csv").write_text("\n".join([*content[:1], *content[2:]]) + "\n")
    one, other = (
        CreditCard(str(root)).load(Streams(0)).train.x
        for root in (f"{small_root}/creditcard", tmp_path)
    )
    same = {row.tobytes() for row in one} & {row.tobytes() for row in other}
    assert len(same) < len(one) / 2
    assert not READING.rows(Distance(1, 1)).finite


def test_an_allocation_carries_its_chain():
    data = Table()
    records = Records(
        np.zeros((40, 2), np.float32), np.zeros(40), np.arange(40) % SILOS, np.arange(40) % 10
    )
    allocation = Natural(10, SILOS).allocate(records, data, Streams(0))
    assert allocation.stability == Natural(10, SILOS).stability(data)
    kept = select(allocation, 3)
    assert kept.stability.of("user", ADD_REMOVE) == Distance(1, 3)
    drawn = Zipf(10, SILOS, invent_users=True).allocate(records, data, Streams(0))
    assert drawn.stability.of("user", ADD_REMOVE).users == 1
    assert "names other users" in drawn.stability.assumptions[0]


def test_an_allocator_that_says_nothing_has_no_distance():
    allocation = Allocation(np.zeros(4, int), np.zeros(4, int), np.ones(4, bool), 1, 1)
    assert allocation.stability == UNSTATED
    kept = select(allocation, 2)
    for unit, adjacency in UNITS.values():
        for chain in (allocation.stability, kept.stability):
            assert "states no stability" in chain.of(unit, adjacency).why


@pytest.mark.parametrize(
    ("words", "user", "record"),
    [
        (("algo=uldp_avg",), math.inf, 1),
        (("algo=uldp_group",), 8, 2),
        (("algo=uldp_group_median",), math.inf, math.inf),
    ],
)
def test_a_federation_knows_the_distance(words, user, record):
    exp = experiment(*words)
    assert exp.federation.stability == exp.allocator.stability(exp.data)
    _, _, federation = allocate(exp)
    assert federation.stability.of("user", ADD_REMOVE).rows == user
    assert federation.stability.of("record", ADD_REMOVE).rows == record


def test_uldp_group_on_the_default_data():
    """Of 455 records, 122 change nothing if they are absent, 157 change one training record, and
    176 two: truncation lets another record of the same user in."""
    exp = testing.experiment("algo=uldp_group")
    records = exp.data.load(exp.streams).train
    whole = exp.allocator.allocate(records, exp.data, exp.streams)
    before = exp.algo.training_records(whole, exp.data)
    moved = []
    for record in np.flatnonzero(whole.trains):
        left = whole.trains.copy()
        left[record] = False
        after = exp.algo.training_records(replace(whole, trains=left), exp.data)
        differ = np.flatnonzero(after.trains != before.trains)
        assert set(whole.user[differ]) <= {whole.user[record]}
        moved.append(len(differ))
    assert np.bincount(moved).tolist() == [122, 157, 176]
    assert before.stability.of("record", ADD_REMOVE).rows == max(moved)


@dataclass(frozen=True)
class Median(UldpSgd):
    """Trains on users with many records, and says nothing of it."""

    def training_records(self, allocation, data):
        owned = allocation.counts().sum(axis=0)[allocation.user]
        return replace(allocation, trains=allocation.trains & (owned >= np.median(owned)))


def test_a_method_that_chooses_records_without_a_word_has_no_certificate():
    exp = testing.experiment("algo=uldp_sgd", "preset.n_users=8")
    values = {field.name: getattr(exp.algo, field.name) for field in fields(exp.algo)}
    chosen = replace(exp, algo=Median(**values))
    for run, certified in ((exp, True), (chosen, False)):
        assert math.isfinite(allocate(run)[2].stability.of("user", ADD_REMOVE).users) == certified
        rows = EpsilonForecast.of(run).rows_at([1])
        assert all(math.isfinite(row.certified) == certified for row in rows)
