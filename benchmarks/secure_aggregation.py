"""Secure sums of real cohorts: the cost of one silo, and of the server when silos drop out.

Processor seconds of one core, with the code of a run. `masked` is a silo's round under
aggregation=masked. The other columns are secagg's:

- `shares` checks keys, agrees on a mask with each neighbour and seals shares for them;
- `mask` encodes the vector and adds all masks;
- `reveal` checks signatures and opens the neighbours' shares;
- `stage` is the sum of these three;
- `unmask` is the server's work: it rebuilds the mask keys of silos that dropped out after sharing,
  and removes one mask for each of them and each surviving neighbour, and the survivors' own.

Digests and signatures of messages are not timed; stamps and signatures count in what is sent. One
silo is timed, the last, for which the others' keys and shares are made. The server adds the same
message for all. The sparse graph is that of neighbours=auto for 5 % colluding and 5 % missing
silos.

`bare` is the part of `mask` that no code can save: the same amount of AES-256 key stream in counter
mode, made and added within the cache. `mask` and `bare` take alternating turns; the ratio is that
of `mask` to `bare`. The difference is the encoding, and a key schedule for each peer.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks._fresh_process import in_fresh_process
from benchmarks._ratios import alternating_turns, compared
from fedpriv.parties.messages import size_of

if TYPE_CHECKING:
    from fedpriv.aggregation.secagg.degrees import Assumed
    from fedpriv.aggregation.secagg.graph import Complete, Graph, Sparse
    from fedpriv.aggregation.secagg.messages import Terms
    from fedpriv.aggregation.secagg.silo import Member


@dataclass(frozen=True)
class Case:
    """A configuration.

    silos: number of silos.
    parameters: length of the vector.
    dropped: silos that share keys and never deliver.
    bits: size of the ring.
    sparse: whether silos share masks on the sparse graph.
    """

    silos: int
    parameters: int
    dropped: int
    bits: int
    sparse: bool = False

    @property
    def assumed(self) -> Assumed:
        from fedpriv.aggregation.secagg.degrees import Assumed

        few = self.silos // 20
        return Assumed(
            candidates=self.silos,
            cohort=self.silos - self.dropped,
            threshold=two_thirds(self.silos),
            colluding=few,
            missing=max(few, self.dropped),
        )

    @property
    def topology(self) -> Complete | Sparse:
        from fedpriv.aggregation.secagg.graph import Complete

        least = self.assumed.least(40, 20) if self.sparse else None
        return Complete(self.assumed.threshold) if least is None else least


@dataclass
class Clock:
    """Processor seconds of each phase; the median if it is repeated.

    seconds: by phase.
    """

    seconds: dict[str, float] = field(default_factory=dict)

    def time(
        self, phase: str, work: Callable[..., Any], *arguments: Any, turns: int = 1, **details: Any
    ) -> Any:
        """The last result of `turns` calls of work(*arguments, **details)."""
        taken = []
        for _ in range(turns):
            since = time.process_time()
            result = work(*arguments, **details)
            taken.append(time.process_time() - since)
        self.seconds[phase] = float(np.median(taken))
        return result


Shares = dict[str, np.ndarray]

SESSION = bytes(16)
SERIAL = (1, 0)
TURNS = 5
"""Turns of masking; medians are shown."""

CASES = [Case(100, 1_000_000, 10, 64), Case(100, 1_000_000, 10, 32)]
COMPLETE = Case(1000, 100_000, 50, 64)
SPARSE = Case(1000, 100_000, 50, 64, sparse=True)
LARGE = Case(10_000, 10_000, 500, 64, sparse=True)
SHAMIR_SILOS = (100, 1000)
LEAST_RATIO = 8
"""Goal: how much faster a silo's stage is on the sparse graph of a thousand silos."""


def main() -> None:
    """Run every case in its own process, and print a table."""
    print(
        "secagg, threshold two thirds; processor seconds of one silo and of the server; MB of "
        "one silo"
    )
    print(
        f"{'silos':>6} {'near':>5} {'params':>8} {'gone':>5} {'bits':>5} {'masked':>8} "
        f"{'shares':>8} {'mask':>8} "
        f"{'bare':>8} {'ratio':>6} {'reveal':>8} {'stage':>8} {'unmask':>9} "
        f"{'MB sent':>8} {'vector':>8} {'plain':>8}"
    )
    stages = {}
    for case in [*CASES, COMPLETE, SPARSE, LARGE]:
        r = in_fresh_process(measure, case)
        stages[case] = r["shares"] + r["mask"] + r["reveal"]
        times = {key: f"{r[key]:6.3f} s" for key in ("masked", "shares", "mask", "bare", "reveal")}
        times["bare"] += f" {r['ratio']:>6.2f}"
        print(
            f"{case.silos:>6} {r['near']:>5.0f} {case.parameters:>8} {case.dropped:>5} "
            f"{case.bits:>5} "
            f"{' '.join(times.values())} {stages[case]:6.3f} s {r['unmask']:7.3f} s "
            f"{r['sent']:>8.2f} {r['vector']:>8.2f} {r['plain']:>8.2f}",
            flush=True,
        )
    ratio = stages[COMPLETE] / stages[SPARSE]
    met = "met" if ratio >= LEAST_RATIO else "MISSED"
    print(
        f"a silo's stage of {SPARSE.silos} silos, complete over sparse: {ratio:.1f} (at least "
        f"{LEAST_RATIO}: {met})"
    )
    for case in (SPARSE, LARGE):
        print(f"{case.silos} silos:", *case.assumed.describe(case.topology), sep="\n  ")  # type: ignore[arg-type]
    for silos in SHAMIR_SILOS:
        split, join = in_fresh_process(shamir, silos)
        print(
            f"Shamir, 32 bytes, {silos} silos, threshold two thirds: split {split:.2f} ms, first "
            f"join {join:.2f} ms"
        )


def measure(case: Case) -> dict[str, float]:
    """Seconds of each phase for one silo, and of the server's unmasking; megabytes that the silo
    sends."""
    from fedpriv.aggregation.base import SERVER
    from fedpriv.aggregation.masked import mask
    from fedpriv.aggregation.secagg.messages import (
        ADVERTISE,
        CHECK,
        COLLECT,
        SHARE,
        UNMASK,
        Terms,
        receipt_statement,
        seed_commitment,
        set_statement,
    )
    from fedpriv.aggregation.secagg.server import Collector
    from fedpriv.encoding.fixed_point import FixedPoint
    from fedpriv.parties.post import Post
    from fedpriv.parties.schema import Array
    from fedpriv.util.streams import SystemGenerator

    silos = case.silos
    cohort = case.silos - case.dropped
    threshold = two_thirds(case.silos)
    encoding = FixedPoint(case.bits, 1e4, cohort)
    terms = Terms(
        stamp=(SESSION, *SERIAL, bytes(32)),
        threshold=threshold,
        cohort=cohort,
        candidates=silos,
        topology=case.topology,
        encoding=encoding,
    )
    names = [f"silo{s:05}" for s in range(silos)]
    chosen = names[case.dropped :]
    one = names[-1]
    vector = np.random.default_rng(0).normal(size=case.parameters)
    clock = Clock()

    def encoded() -> np.ndarray:
        return encoding.encode(vector, one)

    seeds = {name: os.urandom(32) for name in names if name != one}
    clock.time(
        "masked", lambda: mask(encoded(), one, names, seeds=seeds, serial=SERIAL), turns=TURNS
    )
    members = members_of(names, terms, encoded)
    signing = {name: member.signer.key for name, member in members.items()}
    roster = {name: member.advertise(None) for name, member in members.items()}
    sharing = clock.time("shares", members[one].share_keys, roster)
    graph = members[one].graph
    session = members[one].session
    key_shares, seed_shares, letters = deal(members, one, graph, terms.topology.shares)
    shared = np.ones(silos, dtype=np.bool_)
    delivery = members[one].masked_input((shared, letters))
    message = delivery[0]
    masking = alternating_turns(
        {
            "mask": lambda: members[one].masked_input((shared, letters)),
            "bare": lambda: bare_masks(len(graph.around(one)), message),
        },
        TURNS,
        warm_up=0,
    )
    clock.seconds |= {name: float(np.median(seconds)) for name, seconds in masking.items()}
    clock.seconds["ratio"] = compared([*zip(masking["bare"], masking["mask"])])[2]
    receipts = {}
    if case.topology.receipts:
        about = receipt_statement(members[one].purpose)
        receipts = {name: members[name].signer.sign(about) for name in chosen}
    consent = clock.time("consent", members[one].consent, (chosen, chosen, receipts))
    statement = set_statement(members[one].purpose, chosen)
    signatures = {name: signing[name].sign(statement) for name in chosen[-threshold:]}
    answer = clock.time("reveal", members[one].reveal, signatures)
    revealed: dict[str, Shares] = {name: {} for name in chosen}
    inside = set(chosen)
    for owner in names:
        rows = (seed_shares if owner in inside else key_shares)[owner]
        for row, holder in zip(rows, graph.around(owner)):
            if holder in inside:
                revealed[holder][owner] = row
    commitments = {
        name: seed_commitment(session, name, member.seed) for name, member in members.items()
    }
    # One message serves for all silos: the server's work does not depend on the numbers.
    schema = Array(encoding.dtype, (case.parameters,))
    clock.time(
        "unmask",
        Collector(Post(SERVER, SESSION, SERIAL), terms, names, SystemGenerator(), schema).unmask,
        roster=roster,
        commitments=commitments,
        masked=dict.fromkeys(chosen, message),
        revealed=revealed,
    )
    contents = {
        ADVERTISE: roster[one],
        SHARE: sharing,
        COLLECT: delivery,
        CHECK: consent,
        UNMASK: answer,
    }
    sent = sum(
        size_of(next(members[one].post.send(phase, {SERVER: content})))
        for phase, content in contents.items()
    )
    sizes = {"sent": sent / 1e6, "vector": message.nbytes / 1e6, "plain": vector.nbytes / 1e6}
    return clock.seconds | sizes | {"near": len(graph.around(one)) - 1}


def members_of(
    names: list[str], terms: Terms, vector: Callable[[], np.ndarray]
) -> dict[str, Member]:
    """All silos at the start of a query."""
    from fedpriv.aggregation.secagg.silo import Member
    from fedpriv.crypto.signatures import Ed25519Signer, SigningKey
    from fedpriv.parties.post import Post

    signing = {name: SigningKey.generate() for name in names}
    registry = {name: key.verification_key for name, key in signing.items()}
    signers = {name: Ed25519Signer(key, registry) for name, key in signing.items()}
    return {
        name: Member(
            post=Post(name, SESSION, SERIAL, signer),
            terms=terms,
            signer=signer,
            trained=lambda: iter(()),
            vector=vector,
            invited=tuple(names),
        )
        for name, signer in signers.items()
    }


def deal(
    members: dict[str, Member], one: str, graph: Graph, threshold: int
) -> tuple[Shares, Shares, dict[str, bytes]]:
    """Shares of every silo's mask key and of its seed, a row for each around it, and the letters
    that bring silo `one` its own."""
    from fedpriv.aggregation.secagg.messages import Envelope
    from fedpriv.crypto.secret_sharing import share

    around = {name: graph.around(name) for name in members}
    keys = {
        name: share(member.masking.raw, threshold, len(around[name]))
        for name, member in members.items()
    }
    seeds = {
        name: share(member.seed, threshold, len(around[name])) for name, member in members.items()
    }
    peer = members[one].channel.public
    session = members[one].session
    letters = {}
    for name in graph.around(one):
        if name != one:
            row = around[name].index(one)
            envelope = Envelope(
                own=members[name].channel, peer=peer, session=session, sender=name, receiver=one
            )
            letters[name] = envelope.seal(keys[name][row].tobytes() + seeds[name][row].tobytes())
    return keys, seeds, letters


def two_thirds(silos: int) -> int:
    """The default threshold of secagg."""
    return 2 * silos // 3 + 1


def bare_masks(masks: int, vector: np.ndarray) -> None:
    """Make and add the key stream of so many masks for the vector, block by block in one place."""
    from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

    from fedpriv.crypto.prg import BLOCK_BYTES

    zeros = bytes(BLOCK_BYTES)
    room = bytearray(BLOCK_BYTES)
    stream = Cipher(algorithms.AES256(os.urandom(32)), modes.CTR(bytes(16))).encryptor()
    total = np.zeros(BLOCK_BYTES // vector.itemsize, vector.dtype)
    mask = np.frombuffer(room, vector.dtype)
    for _ in range(round(masks * vector.nbytes / BLOCK_BYTES)):
        stream.update_into(zeros, room)
        np.add(total, mask, out=total)


def shamir(silos: int, turns: int = 5) -> tuple[float, float]:
    """Median milliseconds to share 32 bytes, and to rebuild them from a new set of silos."""
    from fedpriv.crypto.secret_sharing import Reconstruction, share

    threshold = two_thirds(silos)
    splits = []
    joins = []
    share(bytes(32), threshold, silos)  # the powers of the points are made once
    for turn in range(turns):
        since = time.process_time()
        shares = share(os.urandom(32), threshold, silos)
        splits.append(time.process_time() - since)
        chosen = np.sort(np.random.default_rng(turn).permutation(silos)[:threshold])
        since = time.process_time()
        Reconstruction.at([int(i) + 1 for i in chosen]).secrets(shares[None, chosen])
        joins.append(time.process_time() - since)
    return 1e3 * float(np.median(splits)), 1e3 * float(np.median(joins))
