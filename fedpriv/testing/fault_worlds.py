"""The smallest experiments that show what every aggregation does with faults."""

from __future__ import annotations

from dataclasses import dataclass

from fedpriv.algorithms.base import Algorithm
from fedpriv.settings.experiment import Experiment
from fedpriv.testing.record_sgd import RecordSgd
from fedpriv.testing.worlds import experiment

SMALL = ("preset.n_users=6", "preset.local_epochs=1", "preset.silo_epochs=1")
FOUR = ("allocator.n_silos=4", "aggregation.cohort=3", "aggregation.threshold=3")
COUNTED = ("algo=uldp_avg", "algo.weighting=records")
STATEFUL = ("algo=scaffold",)
PRIVATE = (
    *COUNTED,
    "aggregation=private_weighting",
    "aggregation.key_bits=256",
    "aggregation.n_max=12",
    "aggregation.count_cap=4",
    "aggregation.precision=16",
)


@dataclass(frozen=True)
class World:
    """An experiment of a query a round.

    words: of its command, beside `SMALL`.
    algo: takes the place of that one's.
    """

    title: str
    words: tuple[str, ...]
    algo: Algorithm | None = None

    def experiment(self, *more: str) -> Experiment:
        return experiment(*SMALL, *self.words, *more, algo=self.algo)


WORLDS = {
    "secagg": World(
        "secagg, 3 of 4 silos, weights from record counts", ("aggregation=secagg", *FOUR, *COUNTED)
    ),
    "secagg_state": World(
        "secagg, 3 of 4 silos, which keep a state", ("aggregation=secagg", *FOUR, *STATEFUL)
    ),
    "exact": World(
        "secagg_exact_noise, 3 or 4 of 4 silos, weights from record counts",
        ("aggregation=secagg_exact_noise", *FOUR, *COUNTED),
    ),
    "plain": World("plain, weights from record counts", ("aggregation=plain", *COUNTED)),
    "plain_state": World("plain, silos keep a state", ("aggregation=plain", *STATEFUL)),
    "masked": World("masked, weights from record counts", ("aggregation=masked", *COUNTED)),
    "masked_state": World("masked, silos keep a state", ("aggregation=masked", *STATEFUL)),
    "private": World("private_weighting, 256-bit key", PRIVATE),
    "oblivious": World(
        "private_weighting, 256-bit key, half of the users sampled obliviously",
        (*PRIVATE, "preset.n_users=2", "algo.user_rate=0.5", "aggregation.oblivious=true"),
    ),
    "shuffle": World("shuffle", ("aggregation=shuffle", "mechanism=binomial"), RecordSgd()),
    "admm": World(
        "admm, 9 peers in groups of 3, weights from record counts",
        ("aggregation=admm", "allocator.n_silos=9", *COUNTED),
    ),
    "admm_masked": World(
        "admm, 3 peers that mask messages",
        ("aggregation=admm", "aggregation.masking=true", "algo=uldp_avg"),
    ),
}
"""Every aggregation, by a short name."""
