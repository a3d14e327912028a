"""Sums with weights n_su / N_u that nobody learns: neither the server nor any silo sees another's record counts.

Kato, Xiong, Takagi, Cao, Yoshikawa: Uldp-FL: Federated learning with across-silo user-level differential privacy,
PVLDB 17(11), 2024, Protocol 1. Once, the silos blind their counts with factors that only they know, r_u, and the server
inverts the blinded totals r_u N_u. In a round it sends Enc(1 / (r_u N_u)); a silo raises it to r_u n_su C_LCM times its
users' contributions, which leaves C_LCM n_su / N_u times the contribution under the encryption, adds noise and masks
that cancel in the sum over the silos, and the server decrypts that sum alone. With sub-sampling the server sends Enc(0)
for users outside the sample; silos cannot tell and train all of their users.

    N_max            `n_max`         C_LCM   lcm(1..n_max)       P (precision)     2^-`precision`
    n_su, N_u        counts          r_u     `blind`             B'_su             blinded counts
    B_inv(N_u)       `inverses`      R       `seed`              lambda (key)      `key_bits`

Where this departs from the paper, since its text lets counts through:
- Noise that is a multiple of C_LCM hides nothing modulo C_LCM. Every silo adds a dither, uniform below C_LCM; it costs
  a grid step of sensitivity in every coordinate (`private_weighting_code`).
- A silo multiplies a fresh n-th residue into every ciphertext that it sends. Without, ciphertexts modulo n tell the
  contributions to the server, noise and masks notwithstanding.
- The protocol needs 1 <= N_u <= N_max. Nobody knows N_u, so each silo answers for its part: it refuses counts above
  floor(N_max / silos), or cuts them to `count_cap`. The weights are then those of the cut counts, closer to uniform for
  users with more records than that; they still add up to one, so the sensitivity is the same. A user without any record
  makes the server's blinded total zero. It then ends the set-up and names the user: who takes part must be settled
  before (record linkage), and that everybody in the list has a record somewhere is public.

Trust: all follow the protocol. The server sees uniformly random numbers, the noisy sum, and whether a user has no
records. A silo sees ciphertexts. The server together with any one silo learns all counts, since all silos share the
blinds. Nobody may drop out: masks would not cancel, and the round ends without a sum. `oblivious` hides the sample from
the server too (`private_weighting_transfer`). Arithmetic is not constant-time: who can time a silo is not covered.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from fedpriv.aggregation.base import SERVER, Aggregation, Outlook, Party
from fedpriv.aggregation.paillier.extra import require_extra
from fedpriv.aggregation.paillier.layout import Layout
from fedpriv.aggregation.private_weighting_code import SlotCode
from fedpriv.aggregation.private_weighting_counts import count_limit
from fedpriv.aggregation.private_weighting_sampling import as_options
from fedpriv.errors import ConfigError, require

if TYPE_CHECKING:
    from fedpriv.algorithms.base import Algorithm, Federation, Plan, Update
    from fedpriv.mechanisms.base import Mechanism

SAFE_KEY_BITS = 2048
"""Shorter keys can be factored, or may soon be."""
VARIANTS = ("sound", "paper")


@dataclass(frozen=True)
class PrivateWeighting(Aggregation):
    """key_bits: length of the Paillier modulus. n_max: cap on a user's records over all silos; costs grow with it.
    precision: binary digits after the point. count_cap: counts of a user in a silo above it are cut to it; null: a silo
    that has more than floor(n_max / silos) refuses. oblivious: hide the sample of users from the server too.
    workers: processes that share a party's work. variant: sound, or paper: without dither and re-randomising, to show
    what that gives away."""

    key_bits: int = 3072
    n_max: int = 500
    precision: int = 24
    count_cap: int | None = None
    oblivious: bool = False
    workers: int = 1
    variant: str = "sound"

    def __post_init__(self) -> None:
        require_extra()
        require(self.key_bits >= 256, "aggregation.key_bits", self.key_bits, "256 or more; 3072 for real use")
        require(self.n_max >= 1, "aggregation.n_max", self.n_max, "a positive number of records")
        require(self.workers >= 1, "aggregation.workers", self.workers, "a positive number of processes")
        require(self.variant in VARIANTS, "aggregation.variant", self.variant, " or ".join(VARIANTS))

    @property
    def hides_messages(self) -> bool:
        return True

    @property
    def hides_counts(self) -> bool:
        return True

    @property
    def hides_sample_from(self) -> frozenset[str]:
        return frozenset({"silo", SERVER} if self.oblivious else {"silo"})

    @property
    def assumptions(self) -> tuple[str, ...]:
        return (
            "the server colludes with no silo: together they learn all record counts",
            "every user has a record in some silo, and that is public",
            "Paillier's encryption and the masks are computationally secure",
        )

    def flaw(self, observer: str) -> str | None:
        if self.variant == "paper":
            return "aggregation.variant=paper lets the decrypted sum and the ciphertexts tell record counts and updates"
        if self.key_bits < SAFE_KEY_BITS and observer == "silo":
            return f"aggregation.key_bits={self.key_bits} can be factored; then a silo reads all record counts"
        return None

    def check(self, algo: Algorithm) -> None:
        allowed = "private_weighting serves weights n_su / N_u alone (algo.weighting=records)"
        require(algo.needs_counts and _weighs_by_records(algo.weights), "aggregation", "private_weighting", allowed)
        if self.oblivious:
            as_options(algo.sampling_rate)

    def count_limit(self, silos: int) -> int:
        """Most records of a user that count in one silo."""
        return count_limit(self.n_max, self.count_cap, silos)

    def code(self, covered: int, bound: float, federation: Federation, mechanism: Mechanism) -> SlotCode:
        self.count_limit(federation.n_silos)
        if not mechanism.clips:
            raise ConfigError(
                "aggregation", "private_weighting", "needs contributions of bounded norm, not mechanism=none"
            )
        noise = mechanism.noise_bound(covered)
        users, clip = federation.n_users, mechanism.clip
        return SlotCode(Layout(self.key_bits, self.n_max, self.precision, users, covered, clip, noise))

    def for_silos(self, plan: Plan) -> Plan:
        return replace(plan, users=None)

    def outlook(self, plan: Plan, federation: Federation, rounds: int) -> Outlook:
        from fedpriv.aggregation.paillier.cost import Timings, predict

        layout, size = plan.code.layout, federation.n_parameters
        cost = predict(layout, federation.n_users, size, Timings.measure(self.key_bits), self.workers, rounds)
        lines = [
            f"private weighting: {self.key_bits}-bit key, at most {self.count_limit(federation.n_silos)} records of a "
            f"user in a silo, {size} parameters in {layout.columns(size)} ciphertexts of {layout.slots} slots of "
            f"{layout.width} bits, grid step 2^-{self.precision}",
            f"{cost} (for a silo that has records of every user)",
        ]
        silo = cost.silo
        if plan.user_rate == 1 and rounds > 1:
            silo -= cost.hoist * (1 - 1 / rounds)
            lines.append(f"all users take part, so a silo's rounds after the first take {cost.silo - cost.hoist:.2f} s")
        options = as_options(plan.user_rate) if self.oblivious else None
        if options is not None and options.hides:
            offered = federation.n_users * options.all
            megabytes = offered * self.key_bits / 4 / 1e6
            lines.append(f"oblivious: the server encrypts {offered} numbers a round, {megabytes:.3f} MB to each silo")
        return Outlook(tuple(lines), federation.n_silos * silo + cost.server)

    def setup(
        self,
        counts: dict[str, np.ndarray],
        weigh: Callable[[np.ndarray], np.ndarray],
        needs_counts: bool,
        memory: dict[str, dict[str, Any]],
    ) -> dict[str, Party]:
        from fedpriv.aggregation.private_weighting_server import server_setup
        from fedpriv.aggregation.private_weighting_silo import silo_setup

        if not (needs_counts and _weighs_by_records(weigh)):
            raise ValueError("private weighting serves weights n_su / N_u alone")
        limit, users = self.count_limit(len(counts)), len(next(iter(counts.values())))
        shown = {name: np.minimum(own, limit) if self.count_cap else own for name, own in counts.items()}
        silos = {name: silo_setup(name, own, limit, memory[name]) for name, own in shown.items()}
        return {SERVER: server_setup(sorted(counts), users, self.key_bits, memory[SERVER]), **silos}

    def exchange(self, plan: Plan, updates: dict[str, Update], memory: dict[str, dict[str, Any]]) -> dict[str, Party]:
        from fedpriv.aggregation.private_weighting_server import server_round
        from fedpriv.aggregation.private_weighting_silo import silo_round

        cohort, size = sorted(updates), len(next(iter(updates.values())).noise)
        options = as_options(plan.user_rate) if self.oblivious else None
        told, sound = self.for_silos(plan), self.variant == "sound"
        silos = {
            name: silo_round(name, told, update, options, self.workers, sound, memory[name])
            for name, update in updates.items()
        }
        return {SERVER: server_round(cohort, plan, size, options, self.workers, memory[SERVER]), **silos}


def _weighs_by_records(weigh: Callable[[np.ndarray], np.ndarray]) -> bool:
    """Whether the weights of an example are n_su / N_u."""
    example = np.array([[3, 1, 0], [2, 0, 7]])
    return np.array_equal(weigh(example), example / example.sum(axis=0))
