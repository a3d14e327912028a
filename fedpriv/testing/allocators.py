"""Whether an allocator and a method's choice of records are as stable as they declare.

Records are deleted from the file, and all stages run again. Measurements can refute a declaration;
they cannot prove it for all data.

>>> from fedpriv.testing.experiments import experiment
>>> check_stability(experiment("algo=uldp_group_2", "preset.n_users=8"), records=3)
"""

from __future__ import annotations

import numpy as np

from fedpriv.data.stability import ADD_REMOVE
from fedpriv.runtime import allocate
from fedpriv.settings.experiment import Experiment
from fedpriv.testing.conformance import ConformanceError
from fedpriv.testing.neighbouring_files import File

Place = tuple[int, int]
"""Owner and silo of a training record."""


def check_stability(exp: Experiment, *, records: int = 30) -> None:
    """Delete every user and some records from the file, one at a time, and compare how many users
    and training records differ with what the stages declare.

    records: number of records that are deleted.

    Raises ConformanceError where more differ. Of users who are drawn, what happens behind the draw
    is checked.
    """
    file = File.of(exp)
    whole = _training(exp)
    stability = allocate(exp)[1].stability
    chosen = np.random.default_rng(0).permutation(len(file.records))[:records]
    for unit in ("user", "record"):
        declared = stability.of(unit, ADD_REMOVE)
        units = file.units(unit) if unit == "user" else list(chosen[:, None])
        for rows in units:
            users, differ = _distance(whole, _training(file.without(rows)))
            if users > declared.users or differ > declared.rows:
                raise ConformanceError(
                    f"{type(exp.allocator).__name__}: without one {unit}, {differ} training "
                    f"records of {users} users differ; declared are {declared.rows:g} of "
                    f"{declared.users:g}"
                )


def _training(exp: Experiment) -> dict[int, Place]:
    """The records that train, by their numbers."""
    corpus, allocation, _ = allocate(exp)
    rows = np.flatnonzero(allocation.trains)
    numbers = rows if corpus.train.number is None else corpus.train.number[rows]
    places = zip(allocation.user[rows].tolist(), allocation.silo[rows].tolist())
    return dict(zip(numbers.tolist(), places))


def _distance(one: dict[int, Place], other: dict[int, Place]) -> tuple[int, int]:
    """How many users and records differ."""
    differ = [
        number for number in one.keys() | other.keys() if one.get(number) != other.get(number)
    ]
    users = {at[number][0] for at in (one, other) for number in differ if number in at}
    return len(users), len(differ)
