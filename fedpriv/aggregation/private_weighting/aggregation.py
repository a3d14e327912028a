"""Sums with weights n_su / N_u that nobody learns: neither the server nor any silo sees another's
record counts.

Kato, Xiong, Takagi, Cao, Yoshikawa: Uldp-FL: Federated learning with across-silo user-level
differential privacy, PVLDB 17(11), 2024, Protocol 1. Once, the silos blind their counts with
factors that only they know, r_u, and the server inverts the blinded totals r_u N_u. In a query it
sends Enc(1 / (r_u N_u)); a silo raises it to r_u n_su C_LCM times its users' contributions, which
leaves C_LCM n_su / N_u times the contribution under the encryption, adds noise and masks that
cancel in the sum over the silos, and the server decrypts that sum alone. With sub-sampling the
server sends Enc(0) for users outside the sample; silos cannot tell and train all of their users.

    N_max            `n_max`         C_LCM   lcm(1..n_max)       P (precision)     2^-`precision`
    n_su, N_u        counts          r_u     `blind`             B'_su             blinded counts
    B_inv(N_u)       `inverses`      R       `common_seed`       lambda (key)      `key_bits`

Differences from the paper, whose text reveals counts:

- Noise that is a multiple of C_LCM hides nothing modulo C_LCM. Every silo adds a dither, uniform
  below C_LCM. It costs a grid step of sensitivity in every coordinate (`encoding.slots`).
- A silo multiplies every ciphertext that it sends by a fresh n-th residue. Without it, ciphertexts
  modulo n reveal the contributions to the server, despite noise and masks.
- The protocol needs 1 <= N_u <= N_max. Nobody knows N_u, so each silo bounds its own part: it
  refuses counts above floor(N_max / silos), or cuts them to `count_cap`. The weights are then those
  of the cut counts, closer to uniform for users with more records. They still add up to one, so the
  sensitivity is the same. A user without any record makes the server's blinded total zero. The
  server then ends the set-up and names the user. So who takes part must be settled before (record
  linkage), and it is public that everybody in the list has a record somewhere.

Trust.

- All parties follow the protocol. The server sees uniformly random numbers, the noisy sum, and
  whether a user has no records. A silo sees ciphertexts.
- The server together with one silo learns all counts, since all silos share the blinds.
- The server passes the silos' public keys on at the set-up, each with its owner's signature under
  the roster: a replaced key is refused. So is a modulus of another length, and a seed that was not
  sealed for the silo. A silo refuses a modulus n with a factor in common with a possible total
  N_u, which would show at once, and one without a proof that it is prime to phi(n)
  (`crypto.paillier.modulus_proof`).
- A silo's message that is damaged or no list of ciphertexts ends the query and names the silo. A
  message that brings the sum beyond its bound ends the query too, and so do keys or ciphertexts of
  the server that do not match. The sum does not show whose they were, and the next query begins
  with a new set-up.
- Other wrong messages of a party go unseen. Every message is signed, so that a change on its way
  is found.
- Nobody may drop out: masks would not cancel, and the query ends without a sum.
- `oblivious` hides the sample from the server too (`crypto.oblivious_transfer`).
- Arithmetic is not constant-time: an attacker who can time a silo is not covered.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from fedpriv.accountants.events import OBSERVERS
from fedpriv.aggregation.base import (
    SERVER,
    HelperProtocol,
    SiloProtocol,
    encoding_of,
)
from fedpriv.aggregation.private_weighting.sampling import as_options, options_to_hide
from fedpriv.aggregation.private_weighting.settings import PrivateWeightingSettings
from fedpriv.aggregation.weighted import PINNED
from fedpriv.algorithms.base import Algorithm
from fedpriv.encoding.slot_layout import SlotLayout
from fedpriv.encoding.slots import SlotEncoding
from fedpriv.errors import require
from fedpriv.rounds.contributors import RecordWeighting, Weighting
from fedpriv.rounds.plan import Federation, Observer, ThreatModel
from fedpriv.rounds.query import Query

if TYPE_CHECKING:
    from fedpriv.mechanisms.base import Mechanism

SAFE_KEY_BITS = 2048
"""Shorter keys can be factored, or may soon be."""


@dataclass(frozen=True)
class PrivateWeighting(PrivateWeightingSettings):
    """Sums with weights n_su / N_u, under Paillier's encryption.

    Its settings are those of `PrivateWeightingSettings`.
    """

    def threat_model(self) -> ThreatModel:
        released, server, silo = OBSERVERS
        flawed = factored = None
        if self.variant == "paper":
            flawed = (
                "aggregation.variant=paper lets the decrypted sum and the ciphertexts reveal "
                "record counts and updates"
            )
        if self.key_bits < SAFE_KEY_BITS:
            factored = (
                f"aggregation.key_bits={self.key_bits} can be factored; then a silo reads all "
                "record counts"
            )
        observers = (
            Observer(released, sees_sample=False, why_uncertified=flawed),
            Observer(server, sees_sample=not self.oblivious, why_uncertified=flawed),
            Observer(silo, sees_sample=False, own_shares=1, why_uncertified=flawed or factored),
        )
        assumptions = (
            PINNED,
            "the server colludes with no silo: together they learn all record counts",
            "every user has a record in some silo, and that is public",
            "Paillier's encryption and the masks are computationally secure",
        )
        return ThreatModel(
            observers,
            learners=(SERVER,),
            assumptions=assumptions,
            cheating="the parties of private_weighting follow the protocol",
        )

    def adapt(self, algo: Algorithm) -> Algorithm:
        allowed = "private_weighting serves weights n_su / N_u alone (algo.weighting=records)"
        records = algo.contributors.weighting == RecordWeighting()
        require(records, "aggregation", "private_weighting", allowed)
        if self.oblivious:
            as_options(algo.contributors.rate)
        return algo

    def encoding(
        self, n_summed: int, bound: float, federation: Federation, mechanism: Mechanism
    ) -> SlotEncoding:
        self.count_limit(federation.n_silos)
        allowed = "needs contributions of bounded norm, not mechanism=none"
        require(mechanism.clips, "aggregation", "private_weighting", allowed)
        layout = SlotLayout(
            key_bits=self.key_bits,
            n_max=self.n_max,
            precision=self.precision,
            users=federation.n_users,
            silos=n_summed,
            bound=mechanism.clip,
            noise=mechanism.noise_bound(n_summed),
        )
        return SlotEncoding(layout)

    def estimate(self, query: Query, federation: Federation) -> tuple[str, ...]:
        layout = encoding_of(query, SlotEncoding).layout
        size = query.size
        lines = [
            f"private weighting: {self.key_bits}-bit key, at most "
            f"{self.count_limit(federation.n_silos)} records of a "
            f"user in a silo, {size} parameters in {layout.columns(size)} ciphertexts of "
            f"{layout.slots} slots of "
            f"{layout.width} bits, grid step 2^-{self.precision}; a silo receives "
            f"{federation.n_users * self.key_bits / 4e6:.3f} MB and sends "
            f"{layout.columns(size) * self.key_bits / 4e6:.3f} MB a round",
        ]
        options = options_to_hide(query.user_rate, self.oblivious)
        if options is not None:
            offered = federation.n_users * options.denominator
            megabytes = offered * self.key_bits / 4 / 1e6
            lines.append(
                f"oblivious: the server encrypts {offered} numbers a round, {megabytes:.3f} MB "
                "to each silo"
            )
        return tuple(lines)

    def silo(self, name: str, silos: tuple[str, ...], weighting: Weighting) -> SiloProtocol:
        from fedpriv.aggregation.private_weighting.silo import PrivateWeightingSilo

        return PrivateWeightingSilo(name, tuple(sorted(silos)), self)

    def helper(self, name: str, silos: tuple[str, ...], weighting: Weighting) -> HelperProtocol:
        from fedpriv.aggregation.private_weighting.server import PrivateWeightingServer

        return PrivateWeightingServer(tuple(sorted(silos)), self)
