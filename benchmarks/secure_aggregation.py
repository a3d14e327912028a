"""Secure sums at the size of real cohorts: what one silo pays, and what the server pays when some drop out.

Processor seconds of one core, with the code that a run uses. `masked` is a silo's round under aggregation=masked. The
others are secagg's: `shares` checks the candidates and seals shares for all of them, `mask` encodes the vector and adds
all masks, `reveal` opens the others' shares. In `unmask` the server rebuilds the mask keys of silos that dropped out
after sharing, and takes off one mask for each of them and each survivor, and the survivors' own.

`bare` is the part of `mask` that no code can save: as much key stream of AES-256 in counter mode, made and added within
the cache. What `mask` takes beyond it is one key agreement for each peer and the encoding.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks._apart import apart
from fedpriv.engines.messages import size_of


@dataclass(frozen=True)
class Case:
    """dropped: silos that share keys and never deliver."""

    silos: int
    parameters: int
    dropped: int
    bits: int


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
    from fedpriv.aggregation.field_shares import share
    from fedpriv.aggregation.fixed_point import FixedPoint
    from fedpriv.aggregation.masked import mask
    from fedpriv.aggregation.secagg import SecAgg
    from fedpriv.aggregation.secagg_messages import (
        new_signing_key,
        seal,
        seed_commitment,
        session_of,
        set_statement,
        sign,
    )
    from fedpriv.aggregation.secagg_server import Collector
    from fedpriv.aggregation.secagg_silo import Member
    from fedpriv.streams import SystemGenerator

    aggregation = SecAgg(cohort=case.silos - case.dropped, candidates=case.silos, bits=case.bits)
    terms = aggregation.terms(case.silos, 1, FixedPoint(case.bits, 1e4, case.silos - case.dropped))
    names = [f"silo{s:04}" for s in range(case.silos)]
    chosen, one, others = names[case.dropped :], names[-1], names[:-1]
    vector = np.random.default_rng(0).normal(size=case.parameters)
    signing = {name: new_signing_key() for name in names}
    registry = {name: public for name, (_, public) in signing.items()}
    members = {
        name: Member(name, terms, signing[name][0], registry, lambda: terms.code.encode(vector, one)) for name in names
    }
    roster = {name: member.advertise(None) for name, member in members.items()}
    session, seconds = session_of(1, roster), {}

    def timed(phase: str, work: Callable[..., Any], *arguments: Any, turns: int = 1) -> Any:
        taken = []
        for _ in range(turns):
            since = time.process_time()
            result = work(*arguments)
            taken.append(time.process_time() - since)
        seconds[phase] = float(np.median(taken))
        return result

    seeds = {name: os.urandom(32) for name in others}
    timed("masked", lambda: mask(terms.code.encode(vector, one), one, names, seeds, 1), turns=TURNS)
    sharing = timed("shares", members[one].share_keys, roster)
    key_shares = {name: share(member.masking[0], terms.threshold, case.silos) for name, member in members.items()}
    seed_shares = {name: share(member.seed, terms.threshold, case.silos) for name, member in members.items()}
    commitments = {name: seed_commitment(session, name, member.seed) for name, member in members.items()}
    letters = {}
    for name in others:
        plain = key_shares[name][-1].tobytes() + seed_shares[name][-1].tobytes()
        letters[name] = seal(members[name].channel[0], roster[one][0], session, name, one, plain)
    message = timed("mask", members[one].masked_input, letters, turns=TURNS)
    timed("bare", bare_masks, case.silos, message, turns=TURNS)
    consent = members[one].consent((chosen, chosen))
    statement = set_statement(session, chosen)
    signatures = {name: sign(signing[name][0], statement) for name in chosen[-terms.threshold :]}
    answer = timed("reveal", members[one].reveal, signatures)
    revealed = {
        name: {owner: (seed_shares if owner in chosen else key_shares)[owner][row] for owner in names}
        for row, name in enumerate(names)
        if name in signatures
    }
    # The same message stands for everybody's: the server's work does not depend on the numbers.
    timed(
        "unmask",
        Collector(terms, names, SystemGenerator()).unmask,
        roster,
        commitments,
        dict.fromkeys(chosen, message),
        revealed,
    )
    sent = sum(map(size_of, [roster[one], sharing, message, consent, answer]))
    return seconds | {"sent": sent / 1e6, "vector": message.nbytes / 1e6, "plain": vector.nbytes / 1e6}


def bare_masks(masks: int, vector: np.ndarray) -> None:
    """Make as much key stream as so many masks for the vector take, and add it up, block by block in one place."""
    from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

    from fedpriv.aggregation.masks import BLOCK_BYTES

    zeros, room = bytes(BLOCK_BYTES), bytearray(BLOCK_BYTES)
    stream = Cipher(algorithms.AES256(os.urandom(32)), modes.CTR(bytes(16))).encryptor()
    total, mask = np.zeros(BLOCK_BYTES // vector.itemsize, vector.dtype), np.frombuffer(room, vector.dtype)
    for _ in range(round(masks * vector.nbytes / BLOCK_BYTES)):
        stream.update_into(zeros, room)
        np.add(total, mask, out=total)


def shamir(silos: int, turns: int = 5) -> tuple[float, float]:
    """Milliseconds to share 32 bytes, and to rebuild them from a set of silos not met before: medians."""
    from fedpriv.aggregation.field_shares import Reconstruction, share

    threshold, splits, joins = 2 * silos // 3 + 1, [], []
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
