"""Secure sums that survive dropouts, over a random part of the silos.

K. Bonawitz et al., Practical secure aggregation for privacy-preserving machine learning (CCS 2017),
with the two random draws that Huang (A federated algorithm for privacy-preserving empirical risk
minimization, section 3) adds for partial participation. A silo hides its vector under pairwise
masks that cancel and under a mask of its own. Both masks' secrets are shared among the candidates.
The survivors reveal one of the two secrets for each silo, never both. Wrong shares end the query:
they must give the public key or the commitment that the silo sent along. The server draws the
candidates U2 among those who answer, and the set U5 of the summed silos among those who delivered.

    symbol           here            meaning
    E0               candidates      most silos that are invited to share keys (U2)
    E                cohort          silos in the sum (U5); at least so many in the first phases
    Th               threshold       shares that reveal a secret; signatures that a set needs
    U1 .. U7         `Collector.run` who has answered in each phase

With `neighbours` each silo shares secrets and masks with some candidates only, on the random graph
of Bell et al. (`graph`). Its degree and thresholds follow from the probability that it fails
(`degrees`). A silo's work then hardly grows with the number of silos. It checks its neighbours'
keys, `CHECKED` of the signatures under the set, and that nowhere on the ring too many neighbours
are left out. Silos that are left out neither sign nor reveal.

Phases: AdvertiseKeys, ShareKeys, MaskedInputCollection, ConsistencyCheck, Unmasking. Too few
answers in one of them end the query without a sum. As printed, Unmasking reconstructs keys over U5
\\ U3 and counts another list; here it is U3 \\ U5 and U6.

Trust.

- The verification keys of the roster are genuine. Every message is signed under them.
- A server that follows the protocol, with fewer than `threshold` silos, learns only the sum. So
  does a cheating server with `colluding` silos, by the theorem of `threat_model`. Settings in which
  it does not hold are refused. On the complete graph each silo signs a receipt, for whom it has
  masked, and signs a set only after it has seen the receipts of all silos in it.
- Each silo's keys are signed together with a digest of what the server has sent down. So all silos
  of a sum were sent the same model. Otherwise a cheating server could choose models for which all
  contributions but one silo's are known (D. Pasquini, D. Francati, G. Ateniese, Eluding secure
  aggregation in federated learning via model inconsistency, CCS 2022).
- Wrong keys, shares, sets and signatures end the query. The error names who passed them on or, if
  that is known, whose they are.
- With as many silos as the threshold the server reads every input.
- A silo can send any vector. Only a sum that honest messages cannot reach is noticed.
- An attacker on the network can stop messages, and so a query. A changed, redirected or foreign
  message is found; a late or repeated one is left aside.
- Nothing proves that the server's draws are random, or that it announces the sum that it had. If
  weights depend on record counts, the server learns the counts.

On a sparse graph the same holds in the random oracle model for at most `corrupt` of the candidates,
if it is fixed who colludes before the query's keys are. It fails with the probability that
`estimate` gives for each query; the probability is lower for a server that follows the protocol.
The probability for a cheating server covers that it drops, leaves out and deceives silos as it
likes once it knows the graph. It also covers up to 2^64 tries, with other candidates or other keys
of colluding silos, for a graph that the server likes. Two things are weaker there. Fewer silos can
read an input: as many of a silo's neighbours as reveal a secret. And only silos that check a wrong
key or signature find it. Whether there is a sum depends on dropouts that are independent of the
graph.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from math import floor
from typing import Any

import numpy as np

from fedpriv.aggregation.base import (
    SERVER,
    CohortSize,
    Respond,
    awaited_broadcast,
    require_setting,
    server_trust,
)
from fedpriv.aggregation.ring import AUTO, RingAggregation, ring_encoding, ring_message
from fedpriv.aggregation.secagg.degrees import Assumed
from fedpriv.aggregation.secagg.graph import Complete, Sparse
from fedpriv.aggregation.secagg.messages import Terms
from fedpriv.aggregation.secagg.server import Collector
from fedpriv.aggregation.secagg.silo import Member
from fedpriv.aggregation.secagg.threat_model import Setting, least_majority
from fedpriv.aggregation.weighted import (
    PINNED,
    WeighingServer,
    WeightedSilo,
)
from fedpriv.crypto.signatures import Ed25519Signer
from fedpriv.errors import require
from fedpriv.parties.messages import digest_of
from fedpriv.parties.party import Party
from fedpriv.rounds.contributors import Weighting
from fedpriv.rounds.plan import Federation, Observer, ThreatModel
from fedpriv.rounds.query import Broadcast, Query

FIXED_BEFORE = "who does is fixed before a query's keys are"
SPARSE = "a sparse graph fails with a probability that is not in this epsilon"
ROUNDING = 1e-9
"""How far a rate times a number of silos may lie below a whole number because of rounding."""


@dataclass(frozen=True)
class SecAgg(RingAggregation):
    """Sums modulo 2^bits over exactly `cohort` silos.

    threshold: shares that reveal a secret, and signatures that a set needs; null: more than two
        thirds of the candidates.
    cohort: silos in the sum; noise shares are sized for this number; null: all candidates.
    candidates: most silos that share keys; null: all silos.
    colluding: silos that may pool all they know with the server, or with a curious silo. The
        settings must hold against a cheating server with so many; certificates leave the noise of
        these silos out. A curious silo counts itself.
    neighbours: of a silo on the graph, an even number below the cohort; "auto": as few as are safe,
        or all where that does not save half; null: all. The next four settings belong to it.
    dropouts: share of the candidates that are not in the sum, or silent in the last phases.
    corrupt: share of the candidates that collude.
    security_bits: a cheating server breaks a silo's protection with a probability of at most
        2^-security_bits in a query.
    correctness_bits: there is no sum with a probability of at most 2^-correctness_bits.
    """

    threshold: int | None = None
    cohort: int | None = None
    candidates: int | None = None
    colluding: int = 0
    neighbours: int | str | None = None
    dropouts: float = 0.05
    corrupt: float = 0.05
    security_bits: int = 40
    correctness_bits: int = 20

    def __post_init__(self) -> None:
        super().__post_init__()
        for key in ("threshold", "cohort", "candidates"):
            positive = getattr(self, key) is None or getattr(self, key) >= 1
            require_setting(self, key, positive, "a positive integer, or null")
        for low, high in (
            ("threshold", "cohort"),
            ("cohort", "candidates"),
            ("threshold", "candidates"),
        ):
            small, large = getattr(self, low), getattr(self, high)
            fits = small is None or large is None or small <= large
            require_setting(self, low, fits, f"at most aggregation.{high}={large}")
        allowed = "zero or a positive number of silos"
        require_setting(self, "colluding", self.colluding >= 0, allowed)
        degree = self.neighbours
        even = type(degree) is int and degree >= 2 and degree % 2 == 0
        allowed = "a positive even number, auto or null"
        require_setting(self, "neighbours", degree in (None, AUTO) or even, allowed)
        for key in ("dropouts", "corrupt"):
            require_setting(self, key, 0 <= getattr(self, key) < 1, "from 0 to below 1")
        for key in ("security_bits", "correctness_bits"):
            require_setting(self, key, getattr(self, key) >= 1, "a positive integer")

    def threat_model(self) -> ThreatModel:
        sparse = f"at most {self.corrupt:.0%} of the candidates collude: {FIXED_BEFORE}"
        most = f"at most {self.colluding} silos collude with the server"
        few = most if self.colluding else "no silo colludes with the server"
        assumptions = (PINNED, few) if self.neighbours is None else (PINNED, sparse)
        cheating = None if self.neighbours is None else SPARSE
        trust = server_trust(sees_messages=False, assumptions=assumptions, cheating=cheating)
        released, server, silo = trust.observers
        observers = (released, self._with_noise(server), self._with_noise(silo))
        return replace(trust, observers=observers)

    def _with_noise(self, observer: Observer) -> Observer:
        """The observer with the noise that colluding silos reveal to it."""
        own = observer.own_shares
        return replace(
            observer, own_shares=max(own, self.colluding), colluding=max(0, self.colluding - own)
        )

    def cohort_size(self, n_invited: int) -> CohortSize:
        self.sparse_graph(n_invited)
        return CohortSize(self.numbers(n_invited)[1])

    def estimate(self, query: Query, federation: Federation) -> tuple[str, ...]:
        """The graph and how likely it fails."""
        if self.neighbours is None:
            return ()
        assumed = self._assumed(len(query.invited))
        sparse = self.sparse_graph(len(query.invited))
        if sparse is None:
            return ("secagg: complete graph; no sparse one that is safe saves half of it",)
        return tuple(assumed.describe(sparse))

    def terms(self, query: Query, told: bytes = b"") -> Terms:
        """The numbers that all parties use in a query. Raises ConfigError when they do not fit the
        invited silos.

        told: digest of the broadcast.
        """
        threshold, cohort, candidates = self.numbers(len(query.invited))
        return Terms(
            stamp=(query.exchange.session, *query.serial, told),
            threshold=threshold,
            cohort=cohort,
            candidates=candidates,
            topology=self.sparse_graph(len(query.invited)) or Complete(threshold),
            encoding=ring_encoding(query),
        )

    def numbers(self, silos: int) -> tuple[int, int, int]:
        """Threshold, cohort and candidates. Raises ConfigError for numbers that do not fit, or with
        which a cheating server could learn more than one sum."""
        candidates = silos if self.candidates is None else self.candidates
        fits = candidates <= silos
        require_setting(self, "candidates", fits, f"at most the {silos} silos")
        threshold = self.threshold
        if threshold is None:
            threshold = max(2 * candidates // 3 + 1, least_majority(candidates, self.colluding))
        cohort = self._least_cohort(candidates, threshold)
        most = min(cohort, candidates) - 1
        allowed = f"at most {most}: below the cohort and the candidates"
        require_setting(self, "colluding", self.colluding <= most, allowed)
        setting = Setting(
            silos=silos,
            candidates=candidates,
            cohort=cohort,
            threshold=threshold,
            colluding=self.colluding,
        )
        self.require_safe(setting)
        return threshold, cohort, candidates

    def _least_cohort(self, candidates: int, threshold: int) -> int:
        """Fewest silos in a sum."""
        return candidates if self.cohort is None else self.cohort

    def require_safe(self, setting: Setting) -> None:
        """Raise ConfigError for a setting in which a cheating server could learn more than one
        sum."""
        colluding = setting.colluding
        some = f" + {colluding} colluding" if colluding else ""
        split = least_majority(setting.candidates, colluding)
        twice = least_majority(setting.silos, colluding)
        for key, holds, allowed in (
            ("cohort", setting.cohort <= setting.candidates, "at most aggregation.candidates"),
            ("threshold", setting.threshold <= setting.cohort, "at most aggregation.cohort"),
            (
                "threshold",
                setting.one_statement,
                f"at least {split}, over half of {setting.candidates} candidates{some}: else a "
                "cheating server could split the sum",
            ),
            (
                "cohort",
                setting.one_session,
                f"at least {twice}, over half of {setting.silos} silos{some}, or as many "
                "candidates as silos: else a cheating server could read two sums",
            ),
        ):
            require(holds, f"aggregation.{key}", getattr(setting, key), allowed)

    def sparse_graph(self, silos: int) -> Sparse | None:
        """The sparse graph; None for the complete one."""
        if self.neighbours is None:
            return None
        _, cohort, candidates = self.numbers(silos)
        assumed = self._assumed(silos)
        if not isinstance(self.neighbours, int):
            least = assumed.least(self.security_bits, self.correctness_bits)
            return least if least is not None and 2 * least.degree < candidates else None
        allowed = f"below the cohort of {cohort}"
        require_setting(self, "neighbours", self.neighbours < cohort, allowed)
        return assumed.required(self.neighbours, self.security_bits, self.correctness_bits)

    def _assumed(self, silos: int) -> Assumed:
        threshold, cohort, candidates = self.numbers(silos)
        missing = floor(self.dropouts * candidates + ROUNDING)
        left_out, most = candidates - cohort, candidates - threshold
        numbers = f"of {candidates} candidates, for the cohort of {cohort} and the threshold"
        allowed = f"{left_out} to {most} {numbers}"
        require_setting(self, "dropouts", left_out <= missing <= most, allowed)
        colluding = floor(self.corrupt * candidates + ROUNDING)
        most = 2 * threshold - candidates
        allowed = f"fewer than {most} of {candidates} candidates, for the threshold of {threshold}"
        require_setting(self, "corrupt", colluding < most, allowed)
        most = 2 * threshold - silos
        allowed = (
            f"{silos}, all silos, or fewer silos: without receipts, a cheating server could read "
            f"two sums unless twice the threshold of {threshold} exceeds silos and colluding silos"
        )
        require(colluding < most, "aggregation.candidates", candidates, allowed)
        allowed = f"at most {colluding}, for aggregation.corrupt={self.corrupt:g}"
        require_setting(self, "colluding", self.colluding <= colluding, allowed)
        return Assumed(
            candidates=candidates,
            cohort=cohort,
            threshold=threshold,
            colluding=colluding,
            missing=missing,
            others=silos - candidates,
        )

    def silo(self, name: str, silos: tuple[str, ...], weighting: Weighting) -> SecAggSilo:
        return SecAggSilo(name, silos, weighting, self)

    def helper(self, name: str, silos: tuple[str, ...], weighting: Weighting) -> SecAggServer:
        return SecAggServer(silos, weighting, self)


@dataclass(repr=False)
class SecAggSilo(WeightedSilo):
    """A silo that signs with its long-term key; all other keys serve for one query."""

    aggregation: SecAgg
    signer: Ed25519Signer = field(init=False)

    def query(self, query: Query, respond: Respond) -> Party:
        post = query.post(self.name, self.signer)
        broadcast = yield from awaited_broadcast(post, query)
        if broadcast is None:
            return
        job = respond(broadcast)
        made: list[np.ndarray] = []

        def trained() -> Party:
            made.append((yield from self.summed(query, job)))

        noise = query.removable
        if noise is not None and job.secret is None:
            raise ValueError(f"query {query.name}: its noise has no secret that removes parts")
        yield from self.member(
            post=post,
            terms=self.aggregation.terms(query, post.told(SERVER)),
            signer=self.signer,
            # Called late: the result would wait in memory.
            trained=trained,
            vector=made.pop,
            invited=query.silos,
            noise=noise,
            secret=job.secret or b"",
        ).run()

    def member(self, **fields: Any) -> Member:
        """This silo's part in a query."""
        return Member(**fields)


@dataclass
class SecAggServer(WeighingServer):
    """A server that keeps nothing from one query to the next."""

    aggregation: SecAgg

    def query(self, query: Query, broadcast: Broadcast) -> Party:
        collector = Collector(
            post=query.post(SERVER, self.signer),
            terms=self.aggregation.terms(query, digest_of(broadcast)),
            invited=sorted(query.silos),
            draws=query.streams.secret(query.stream("silo sample"), query.round, SERVER),
            message=ring_message(query),
            noise=query.removable,
        )
        return (yield from collector.run(broadcast))
