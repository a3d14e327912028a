"""The smallest experiments that show how every aggregation handles faults."""

from __future__ import annotations

from dataclasses import dataclass

from fedpriv.settings.experiment import Experiment
from fedpriv.testing import experiment

TINY = "preset.n_users=6 preset.local_epochs=1 preset.silo_epochs=1"
FOUR_SILOS = "allocator.n_silos=4 aggregation.cohort=3 aggregation.threshold=3"
BY_COUNTS = "algo=uldp_avg algo.weighting=records"
SCAFFOLD = "algo=scaffold"
SHUFFLED = "algo=prox_sgd algo.calibration=given algo.noise_multiplier=2 algo.batch_size=8 rounds=3"
PRIVATE = (
    f"{BY_COUNTS} aggregation=private_weighting aggregation.key_bits=256 "
    "aggregation.n_max=12 aggregation.count_cap=4 aggregation.precision=16"
)


@dataclass(frozen=True)
class Scenario:
    """An experiment with one query a round.

    title: heading of its table.
    command: overrides of its command, beside `TINY`.
    """

    title: str
    command: str

    def experiment(self, *more: str) -> Experiment:
        return experiment(*TINY.split(), *self.command.split(), *more)


SCENARIOS = {
    "secagg": Scenario(
        "secagg, 3 of 4 silos, weights from record counts",
        f"aggregation=secagg {FOUR_SILOS} {BY_COUNTS}",
    ),
    "secagg_state": Scenario(
        "secagg, 3 of 4 silos, which keep a state", f"aggregation=secagg {FOUR_SILOS} {SCAFFOLD}"
    ),
    "exact": Scenario(
        "secagg_exact_noise, 3 or 4 of 4 silos, weights from record counts",
        f"aggregation=secagg_exact_noise {FOUR_SILOS} {BY_COUNTS}",
    ),
    "plain": Scenario("plain, weights from record counts", f"aggregation=plain {BY_COUNTS}"),
    "plain_state": Scenario("plain, silos keep a state", f"aggregation=plain {SCAFFOLD}"),
    "robust": Scenario("robust, weights from record counts", f"aggregation=robust {BY_COUNTS}"),
    "masked": Scenario("masked, weights from record counts", f"aggregation=masked {BY_COUNTS}"),
    "masked_state": Scenario("masked, silos keep a state", f"aggregation=masked {SCAFFOLD}"),
    "private": Scenario("private_weighting, 256-bit key", PRIVATE),
    "oblivious": Scenario(
        "private_weighting, 256-bit key, half of the users sampled obliviously",
        f"{PRIVATE} preset.n_users=2 algo.user_rate=0.5 aggregation.oblivious=true",
    ),
    "shuffle": Scenario("shuffle", f"aggregation=shuffle {SHUFFLED}"),
    "admm": Scenario(
        "admm, 9 peers in groups of 3, weights from record counts",
        f"aggregation=admm allocator.n_silos=9 {BY_COUNTS}",
    ),
    "admm_masked": Scenario(
        "admm, 3 peers that mask messages",
        "aggregation=admm aggregation.masking=true algo=uldp_avg",
    ),
}
"""Every aggregation, by a short name."""

STATEFUL = {name: SCENARIOS[name] for name in ("secagg_state", "plain_state", "masked_state")} | {
    "kept_optimizer": Scenario(
        "secagg, 3 of 4 silos, which keep their optimisers",
        f"aggregation=secagg {FOUR_SILOS} algo=fedavg algo.keep_optimizer=true optimizer=adam",
    ),
    "local": Scenario("plain, silos that train alone", "aggregation=plain algo=local_only"),
}
"""Every method whose silos store something between rounds."""
