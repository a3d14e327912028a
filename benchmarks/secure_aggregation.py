"""Secure sums at the size of real cohorts: what one silo pays, and what the server pays when some drop out.

Processor seconds of one core, with the code that a run uses. `masked` is a silo's round under aggregation=masked. The
others are secagg's: `shares` checks the candidates, agrees on a mask with each of them and seals shares for all,
`mask` encodes the vector and adds all masks, `reveal` opens the others' shares. In `unmask` the server rebuilds the
mask keys of silos that dropped out after sharing, and takes off one mask for each of them and each survivor, and the
survivors' own.

`bare` is the part of `mask` that no code can save: as much key stream of AES-256 in counter mode, made and added within
the cache. What `mask` takes beyond it is the encoding, and a key schedule for each peer.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks._apart import apart
from fedpriv.parties.messages import size_of

if TYPE_CHECKING:
    from fedpriv.aggregation.secagg.silo import Member


@dataclass(frozen=True)
class Case:
    """dropped: silos that share keys and never deliver."""

    silos: int
    parameters: int
    dropped: int
    bits: int


@dataclass
class Clock:
    """Processor seconds of each phase, the median where it is repeated."""

    seconds: dict[str, float] = field(default_factory=dict)

    def time(self, phase: str, work: Callable[..., Any], *arguments: Any, turns: int = 1, **details: Any) -> Any:
        """The last result of so many turns of work(*arguments, **details)."""
        taken = []
        for _ in range(turns):
            since = time.process_time()
            result = work(*arguments, **details)
            taken.append(time.process_time() - since)
        self.seconds[phase] = float(np.median(taken))
        return result


Shares = dict[str, np.ndarray]

TURNS = 5
"""How often masking is timed; medians are shown."""

CASES = [Case(100, 1_000_000, 10, 64), Case(100, 1_000_000, 10, 32), Case(1000, 100_000, 10, 64)]


def main() -> None:
    """Run every case in a process of its own, and print a table."""
    print("secagg, threshold two thirds; processor seconds of one silo and of the server; MB of one silo")
    print(f"{'silos':>6} {'params':>8} {'gone':>5} {'bits':>5} {'masked':>8} {'shares':>8} {'mask':>8} "
          f"{'bare':>8} {'ratio':>6} {'reveal':>8} {'unmask':>8} "
          f"{'MB sent':>8} {'vector':>8} {'plain':>8}")  # fmt: skip
    for case in CASES:
        r = apart(measure, case)
        times = {key: f"{r[key]:6.3f} s" for key in ("masked", "shares", "mask", "bare", "reveal", "unmask")}
        times["bare"] += f" {r['mask'] / r['bare']:>6.2f}"
        print(f"{case.silos:>6} {case.parameters:>8} {case.dropped:>5} {case.bits:>5} {' '.join(times.values())} "
              f"{r['sent']:>8.2f} {r['vector']:>8.2f} {r['plain']:>8.2f}", flush=True)  # fmt: skip
    for silos in (100, 1000):
        split, join = apart(shamir, silos)
        print(f"Shamir, 32 bytes, {silos} silos, threshold two thirds: split {split:.2f} ms, first join {join:.2f} ms")


def measure(case: Case) -> dict[str, float]:
    """Seconds of each phase for one silo, and of the server's unmasking; megabytes that the silo sends."""
    from fedpriv.aggregation.base import SERVER
    from fedpriv.aggregation.masked import mask
    from fedpriv.aggregation.secagg.messages import (
        ADVERTISE,
        CHECK,
        COLLECT,
        SHARE,
        UNMASK,
        Terms,
        seed_commitment,
        set_statement,
    )
    from fedpriv.aggregation.secagg.server import Collector
    from fedpriv.aggregation.secagg.silo import Member
    from fedpriv.crypto.signatures import Ed25519Signer, SigningKey
    from fedpriv.encoding.fixed_point import FixedPoint
    from fedpriv.parties.post import Post
    from fedpriv.parties.schema import Array
    from fedpriv.streams import SystemGenerator

    silos, cohort, threshold = case.silos, case.silos - case.dropped, two_thirds(case.silos)
    encoding = FixedPoint(case.bits, 1e4, cohort)
    terms = Terms(serial=(1, 0), threshold=threshold, cohort=cohort, candidates=silos, encoding=encoding)
    names = [f"silo{s:04}" for s in range(silos)]
    chosen, one = names[case.dropped :], names[-1]
    vector, clock = np.random.default_rng(0).normal(size=case.parameters), Clock()
    signing = {name: SigningKey.generate() for name in names}
    registry = {name: key.verification_key for name, key in signing.items()}
    signers = {name: Ed25519Signer(key, registry) for name, key in signing.items()}
    session = os.urandom(16)

    def encoded() -> np.ndarray:
        return encoding.encode(vector, one)

    seeds = {name: os.urandom(32) for name in names if name != one}
    clock.time("masked", lambda: mask(encoded(), one, names, seeds=seeds, serial=terms.serial), turns=TURNS)
    members = {
        name: Member(
            post=Post(name, session, terms.serial, signer), terms=terms, signer=signer, vector=encoded, invited=names
        )
        for name, signer in signers.items()
    }
    roster = {name: member.advertise(None) for name, member in members.items()}
    sharing = clock.time("shares", members[one].share_keys, roster)
    key_shares, seed_shares, letters = deal(members, one, threshold)
    message = clock.time("mask", members[one].masked_input, letters, turns=TURNS)
    clock.time("bare", bare_masks, silos, message, turns=TURNS)
    consent, drawn = members[one].consent((chosen, chosen)), members[one].session
    statement = set_statement(drawn, chosen)
    signatures = {name: signing[name].sign(statement) for name in chosen[-threshold:]}
    answer = clock.time("reveal", members[one].reveal, signatures)
    revealed = {
        name: {owner: (seed_shares if owner in chosen else key_shares)[owner][row] for owner in names}
        for row, name in enumerate(names)
        if name in signatures
    }
    commitments = {name: seed_commitment(drawn, name, member.seed) for name, member in members.items()}
    # The same message stands for everybody's: the server's work does not depend on the numbers.
    clock.time(
        "unmask",
        Collector(Post(SERVER, session), terms, names, SystemGenerator(), Array(encoding.dtype, vector.shape)).unmask,
        roster=roster,
        commitments=commitments,
        masked=dict.fromkeys(chosen, message),
        revealed=revealed,
    )
    said = {ADVERTISE: roster[one], SHARE: sharing, COLLECT: message, CHECK: consent, UNMASK: answer}
    sent = sum(size_of(next(members[one].post.tell(phase, {SERVER: content}))) for phase, content in said.items())
    return clock.seconds | {"sent": sent / 1e6, "vector": message.nbytes / 1e6, "plain": vector.nbytes / 1e6}


def deal(members: dict[str, Member], one: str, threshold: int) -> tuple[Shares, Shares, dict[str, bytes]]:
    """Shares of every silo's mask key and of its seed, and the letters that bring silo `one`, the last, its own."""
    from fedpriv.aggregation.secagg.messages import Envelope
    from fedpriv.crypto.secret_sharing import share

    keys = {name: share(member.masking.raw, threshold, len(members)) for name, member in members.items()}
    seeds = {name: share(member.seed, threshold, len(members)) for name, member in members.items()}
    peer, session, letters = members[one].channel.public, members[one].session, {}
    for name, member in members.items():
        if name != one:
            envelope = Envelope(own=member.channel, peer=peer, session=session, sender=name, receiver=one)
            letters[name] = envelope.seal(keys[name][-1].tobytes() + seeds[name][-1].tobytes())
    return keys, seeds, letters


def two_thirds(silos: int) -> int:
    """The threshold that secagg takes when none is given."""
    return 2 * silos // 3 + 1


def bare_masks(masks: int, vector: np.ndarray) -> None:
    """Make as much key stream as so many masks for the vector take, and add it up, block by block in one place."""
    from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

    from fedpriv.crypto.prg import BLOCK_BYTES

    zeros, room = bytes(BLOCK_BYTES), bytearray(BLOCK_BYTES)
    stream = Cipher(algorithms.AES256(os.urandom(32)), modes.CTR(bytes(16))).encryptor()
    total, mask = np.zeros(BLOCK_BYTES // vector.itemsize, vector.dtype), np.frombuffer(room, vector.dtype)
    for _ in range(round(masks * vector.nbytes / BLOCK_BYTES)):
        stream.update_into(zeros, room)
        np.add(total, mask, out=total)


def shamir(silos: int, turns: int = 5) -> tuple[float, float]:
    """Milliseconds to share 32 bytes, and to rebuild them from a set of silos not met before: medians."""
    from fedpriv.crypto.secret_sharing import Reconstruction, share

    threshold, splits, joins = two_thirds(silos), [], []
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
