"""Secure sums that survive dropouts, over a random part of the silos.

K. Bonawitz et al., Practical secure aggregation for privacy-preserving machine learning (CCS 2017),
with the two random draws that Huang (A federated algorithm for privacy-preserving empirical risk
minimization, section 3) adds for partial participation. A silo's vector is hidden under pairwise
masks that cancel and under a mask of its own; both masks' secrets are shared among the candidates,
and the survivors reveal one of the two for each silo, never both. Wrong shares end the query: they
must give the public key or the commitment that the silo sent along with them. The server draws the
candidates U2 among those who answer, and the set U5 whose vectors make up the sum among those who
delivered.

    symbol           here            meaning
    E0               candidates      most silos that are invited to share keys (U2)
    E                cohort          silos in the sum (U5), and fewest that must be left in the
    first phases Th               threshold       shares that reveal a secret, signatures that a set
    needs U1 .. U7         `_senders`      who has answered in each phase

With `neighbours` shares and masks go to some candidates only, on the random graph of Bell et al.
(`graph`), whose degree and thresholds come from the probability that it fails (`degrees`): a silo's
work then hardly grows with the number of silos. It checks its neighbours' keys, `CHECKED` of the
signatures under the set, and that nowhere on the ring too many neighbours are left out; those left
out neither sign nor reveal.

Phases: AdvertiseKeys, ShareKeys, MaskedInputCollection, ConsistencyCheck, Unmasking. Too few
answers in any of them end the query without a sum. As printed, Unmasking reconstructs keys over U5
\\ U3 and counts another list; here it is U3 \\ U5 and U6.

Trust. Verification keys handed out at the set-up are genuine; a silo notices when its own comes
back changed, and the set-up itself is not signed. From then on every message is. A server that
follows the protocol, and fewer than `threshold` silos with it, learn nothing but the sum. So does a
server that cheats together with some silos, as long as 2 * threshold > candidates + colluding
silos: no two sets can then both be unmasked (the default, above two thirds, covers up to a third).
Keys, shares, sets and signatures that are not what they should be end the query, with the name of
who passed them on or, where it can be told, of whose they are. As many silos as the threshold, with
the server, read every input. A silo can send any vector; nothing but a sum beyond what honest
messages can reach is found. Whoever is on the network can stop messages, and so a query; one that
is changed, redirected or signed by another is found, one that comes late or again is left aside.
Nothing proves that the server's draws are random, or that the sum it tells is the one it had. With
weights made of record counts the server learns the counts.

On a sparse graph the same holds for at most `corrupt` of the candidates, up to the probability that
`estimate` tells for each query, if which silos collude is fixed before the query's keys are (in the
random oracle model). It is lower for a server that keeps to the protocol. The one for a server that
cheats covers that it drops, leaves out and deceives silos as it likes once it knows the graph, and
that it tries up to 2^64 sets of candidates or of colluding silos' keys to get a graph that it
likes. Two things are weaker there: fewer silos can read an input, namely as many of a silo's
neighbours as reveal a secret; and a wrong key or signature is found only by those who check it.
That a sum is had rests on dropouts that do not depend on the graph.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import floor
from typing import TYPE_CHECKING, Any

from fedpriv.aggregation.base import SERVER, Estimate, awaited_broadcast, invited_silos, trained
from fedpriv.aggregation.ring import AUTO, RingAggregation, RingSilo, ring_encoding, ring_message
from fedpriv.aggregation.secagg.degrees import Assumed
from fedpriv.aggregation.secagg.graph import Complete, Sparse
from fedpriv.aggregation.secagg.messages import Terms
from fedpriv.aggregation.secagg.server import Collector
from fedpriv.aggregation.secagg.silo import Member
from fedpriv.aggregation.weighted import (
    KEYS,
    WEIGHTS,
    WeighingServer,
    exchanged_keys,
    heard_keys,
    server_trust,
)
from fedpriv.crypto.signatures import Ed25519Signer, SigningKey, VerificationKey
from fedpriv.errors import require

if TYPE_CHECKING:
    import numpy as np

    from fedpriv.aggregation.base import Respond
    from fedpriv.parties.party import Party
    from fedpriv.rounds.plan import Federation, ThreatModel
    from fedpriv.rounds.query import Broadcast, Query, SetUp, Update
    from fedpriv.rounds.weighting import Weighting


EARLY = "who does is fixed before a query's keys are"
GENUINE = "verification keys handed out at the set-up are genuine: that exchange is not signed"
ROUNDING = 1e-9
"""What a rate times a number of silos may lack of a whole number."""


@dataclass(frozen=True)
class SecAgg(RingAggregation):
    """Sums modulo 2^bits over exactly `cohort` silos, for which noise shares are sized
    (`n_summed`).

    candidates: null = all silos.
    cohort: null = all candidates.
    threshold: null = more than two thirds of the candidates.

    neighbours: of a silo, an even number below the cohort; "auto": as few as are safe, all of them
    where that does not save half; null: all. On a sparse graph, as shares of the candidates:
    dropouts, who is not in the sum or silent in the last phases; corrupt, who colludes. It fails to
    protect somebody from a cheating server with a probability of at most 2^-security_bits, and to
    give a sum with one of 2^-correctness_bits.
    """

    threshold: int | None = None
    cohort: int | None = None
    candidates: int | None = None
    neighbours: int | str | None = None
    dropouts: float = 0.05
    corrupt: float = 0.05
    security_bits: int = 40
    correctness_bits: int = 20

    def __post_init__(self) -> None:
        super().__post_init__()
        for key in ("threshold", "cohort", "candidates"):
            value = getattr(self, key)
            require(
                value is None or value >= 1,
                f"aggregation.{key}",
                value,
                "a positive integer, or null",
            )
        for low, high in (
            ("threshold", "cohort"),
            ("cohort", "candidates"),
            ("threshold", "candidates"),
        ):
            small = getattr(self, low)
            large = getattr(self, high)
            fits = small is None or large is None or small <= large
            require(fits, f"aggregation.{low}", small, f"at most aggregation.{high}={large}")
        degree = self.neighbours
        even = type(degree) is int and degree >= 2 and degree % 2 == 0
        require(
            degree in (None, AUTO) or even,
            "aggregation.neighbours",
            degree,
            "a positive even number, auto or null",
        )
        for key in ("dropouts", "corrupt"):
            require(
                0 <= getattr(self, key) < 1,
                f"aggregation.{key}",
                getattr(self, key),
                "from 0 to below 1",
            )
        for key in ("security_bits", "correctness_bits"):
            require(
                getattr(self, key) >= 1,
                f"aggregation.{key}",
                getattr(self, key),
                "a positive integer",
            )

    def threat_model(self) -> ThreatModel:
        sparse = (
            ()
            if self.neighbours is None
            else (f"at most {self.corrupt:.0%} of the candidates collude: {EARLY}",)
        )
        return server_trust(sees_messages=False, assumptions=(GENUINE, *sparse))

    def n_summed(self, n_invited: int) -> int:
        numbers = self._numbers(n_invited)
        self._sparse(*numbers)
        return numbers[1]

    def estimate(self, query: Query, federation: Federation, rounds: int) -> Estimate | None:
        """What the graph is and how likely it fails; seconds depend on the machines."""
        if self.neighbours is None:
            return None
        numbers = self._numbers(len(query.invited))
        assumed = self._assumed(*numbers)
        sparse = self._sparse(*numbers)
        if sparse is None:
            return Estimate(
                ("secagg: complete graph; no sparse one that is safe saves half of it",)
            )
        return Estimate(tuple(assumed.told(sparse)))

    def terms(self, query: Query) -> Terms:
        """What all parties go by in a query. Raises ConfigError when it does not fit the silos that
        are invited."""
        threshold, cohort, candidates = self._numbers(len(query.invited))
        return Terms(
            serial=query.serial,
            threshold=threshold,
            cohort=cohort,
            candidates=candidates,
            topology=self._sparse(threshold, cohort, candidates) or Complete(threshold),
            encoding=ring_encoding(query),
        )

    def _numbers(self, silos: int) -> tuple[int, int, int]:
        """Threshold, cohort and candidates."""
        candidates = silos if self.candidates is None else self.candidates
        cohort = candidates if self.cohort is None else self.cohort
        threshold = 2 * candidates // 3 + 1 if self.threshold is None else self.threshold
        require(
            candidates <= silos, "aggregation.candidates", candidates, f"at most the {silos} silos"
        )
        require(
            cohort <= candidates,
            "aggregation.cohort",
            cohort,
            f"at most the {candidates} candidates",
        )
        require(
            threshold <= cohort,
            "aggregation.threshold",
            threshold,
            f"at most aggregation.cohort={cohort}",
        )
        require(
            2 * threshold > candidates,
            "aggregation.threshold",
            threshold,
            f"more than half of {candidates}",
        )
        return threshold, cohort, candidates

    def _sparse(self, threshold: int, cohort: int, candidates: int) -> Sparse | None:
        """The sparse graph's numbers; None for the complete one."""
        if self.neighbours is None:
            return None
        assumed = self._assumed(threshold, cohort, candidates)
        if not isinstance(self.neighbours, int):
            least = assumed.least(self.security_bits, self.correctness_bits)
            return least if least is not None and 2 * least.degree < candidates else None
        require(
            self.neighbours < cohort,
            "aggregation.neighbours",
            self.neighbours,
            f"below the cohort of {cohort}",
        )
        return assumed.required(self.neighbours, self.security_bits, self.correctness_bits)

    def _assumed(self, threshold: int, cohort: int, candidates: int) -> Assumed:
        missing, colluding = (
            floor(rate * candidates + ROUNDING) for rate in (self.dropouts, self.corrupt)
        )
        left_out = candidates - cohort
        most = candidates - threshold
        fits = left_out <= missing <= most
        allowed = (
            f"{left_out} to {most} of {candidates} candidates, for the cohort of {cohort} and "
            "the threshold"
        )
        require(fits, "aggregation.dropouts", self.dropouts, allowed)
        allowed = (
            f"fewer than {2 * threshold - candidates} of {candidates} candidates, for the "
            f"threshold of {threshold}"
        )
        require(
            2 * threshold > candidates + colluding, "aggregation.corrupt", self.corrupt, allowed
        )
        return Assumed(
            candidates=candidates,
            cohort=cohort,
            threshold=threshold,
            colluding=colluding,
            missing=missing,
        )

    def silo(self, name: str, silos: tuple[str, ...], weighting: Weighting) -> SecAggSilo:
        return SecAggSilo(name, silos, weighting, self)

    def helper(self, name: str, silos: tuple[str, ...], weighting: Weighting) -> SecAggServer:
        return SecAggServer(silos, weighting, self)


@dataclass(repr=False)
class SecAggSilo(RingSilo):
    """Signs with one key from set-up to set-up; all other keys serve for one query."""

    aggregation: SecAgg
    signer: Ed25519Signer = field(init=False)

    def setup(self, task: SetUp, counts: np.ndarray) -> Party:
        key = SigningKey.generate()
        keys = yield from exchanged_keys(
            task.post(self.name), key.verification_key.raw, (*self.silos, SERVER)
        )
        self.signer = Ed25519Signer(key, {name: VerificationKey(raw) for name, raw in keys.items()})
        yield from super().setup(task, counts)  # counts and weights are signed too

    def query(self, query: Query, respond: Respond) -> Party:
        post = query.post(self.name, self.signer)
        broadcast = yield from awaited_broadcast(post, query)
        if broadcast is None:
            return
        update = respond(broadcast)
        terms = self.aggregation.terms(query)
        parts = {
            "post": post,
            "terms": terms,
            "signer": self.signer,
            "trained": lambda: trained(update),  # no sooner: what it comes to would wait in memory
            "vector": lambda: self.encoded(update, terms.encoding),
            "invited": invited_silos(query),
        }
        yield from self._member(query, update, parts).run()

    def _member(self, query: Query, update: Update, parts: dict[str, Any]) -> Member:
        """Its part in this query.

        parts: what every member has.
        """
        return Member(**parts)


@dataclass
class SecAggServer(WeighingServer):
    """Signs too, so that nobody on the way can speak in its name. Remembers nothing else from one
    query to the next."""

    aggregation: SecAgg
    signer: Ed25519Signer = field(init=False)

    def setup(self, task: SetUp) -> Party:
        own = SigningKey.generate()
        unsigned = task.post(SERVER)
        keys = yield from heard_keys(unsigned, self.silos)
        keys |= {SERVER: own.verification_key.raw}
        self.signer = Ed25519Signer(own, {name: VerificationKey(raw) for name, raw in keys.items()})
        post = task.post(SERVER, self.signer)
        weights = yield from self.weights_of_silos(
            task, post, unsigned.signed(KEYS, dict.fromkeys(self.silos, keys))
        )
        if weights:
            yield from post.send(WEIGHTS, weights)

    def query(self, query: Query, broadcast: Broadcast) -> Party:
        draws = query.streams.secret(query.stream("silo sample"), query.round, SERVER)
        parts = {
            "post": query.post(SERVER, self.signer),
            "terms": self.aggregation.terms(query),
            "invited": sorted(invited_silos(query)),
            "draws": draws,
            "message": ring_message(query),
        }
        return (yield from self._collector(query, parts).run(broadcast))

    def _collector(self, query: Query, parts: dict[str, Any]) -> Collector:
        """Its part in this query.

        parts: what every collector has.
        """
        return Collector(**parts)
