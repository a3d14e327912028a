"""Private weighting under Paillier: a silo's round with a 3072-bit key, beside python-paillier.

Processor seconds of one core, medians of alternating turns. A silo's round has three phases.
`factors` raises every user's ciphertext to its factor, once for all parameters. `product` makes the
packed weighted sums. `rerand` adds noise and re-randomises. `once` prepares the tables of residues
for a run of ten rounds. `server` encrypts the broadcast, multiplies the silos' messages and
decrypts.

Two loops of python-paillier are timed on a slice and scaled to all (parameter, user) pairs. `phe,
step 2b` raises to Encode(delta) r_u n_su C_LCM mod n for every pair, as in Protocol 1 of Uldp-FL
(PVLDB 2024). `phe, factored` raises to r_u n_su C_LCM once a user, and to the short delta for every
pair. Both omit noise and re-randomisation, which ours includes. The ratio is that of each loop to
the silo's round.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks._fresh_process import in_fresh_process
from benchmarks._ratios import compared

KEY_BITS, N_MAX, PRECISION, SILOS, NOISE = 3072, 100, 24, 3, 80.0
"""NOISE: 16 standard deviations of a silo's share for clip 1 and noise multiplier 5, rounded up."""
ROUNDS = 10
TURNS = 3


@dataclass(frozen=True)
class Case:
    """A configuration.

    users: number of users.
    parameters: number of parameters.
    goal: ratio to python-paillier, or seconds, to reach.
    """

    users: int
    parameters: int
    goal: str


CASES = [
    Case(20, 16, "15x"),
    Case(100, 4000, "300x"),
    Case(100, 21_840, "60 s"),
    Case(1000, 5012, "150 s"),
]
PHASES = ("factors", "product", "rerand")


def main() -> None:
    """Run every case in its own process, and print a table."""
    print(
        f"{KEY_BITS}-bit key, N_max {N_MAX}, precision 2^-{PRECISION}, {SILOS} silos; "
        "processor seconds of one "
        "core; phe scaled from a slice"
    )
    print(
        f"{'users':>6} {'params':>7} {'factors':>7} {'product':>8} {'rerand':>6} {'silo':>7} "
        f"{'once':>6} {'server':>7} {'MB sent':>8} {'phe, step 2b':>20} {'phe, factored':>18} "
        "goal"
    )
    for case in CASES:
        r = in_fresh_process(measure, case)
        print(
            f"{case.users:>6} {case.parameters:>7} {r['factors']:>7.2f} {r['product']:>8.2f} "
            f"{r['rerand']:>6.2f} "
            f"{r['silo']:>7.2f} {r['once']:>6.2f} {r['server']:>7.2f} "
            f"{r['sent']:>8.3f} "
            f"{r['phe']:>11.1f} ({r['phe ratio']:>5.0f}x) {r['factored']:>9.1f} "
            f"({r['factored ratio']:>5.1f}x) "
            f"{case.goal}",
            flush=True,
        )


def measure(case: Case) -> dict[str, float]:
    """Seconds of each phase, ratios, and megabytes that a silo sends.

    Checks every total against plain integers.
    """
    from fedpriv.aggregation.private_weighting.weighted_product import (
        add_and_rerandomise,
        multiply,
        raise_to_factors,
        weighted_product,
    )
    from fedpriv.crypto.paillier.keys import generate_key
    from fedpriv.crypto.paillier.residues import TABLES_PAY, PublishedResidues, TableResidues
    from fedpriv.encoding.slot_layout import SlotLayout

    key = generate_key(KEY_BITS)
    rng = np.random.default_rng(0)
    seconds = {}
    public = key.public
    users = range(case.users)
    layout = SlotLayout(
        KEY_BITS, N_MAX, PRECISION, users=case.users, silos=SILOS, bound=1.0, noise=NOISE
    )
    blinds = [1 + secrets.randbelow(public.n - 1) for _ in users]
    totals = rng.integers(1, N_MAX + 1, case.users).tolist()
    counts = [int(rng.integers(1, total + 1)) for total in totals]
    vectors = rng.normal(size=(case.users, case.parameters))
    vectors /= np.maximum(1, np.linalg.norm(vectors, axis=1, keepdims=True))
    noise = np.rint(rng.normal(size=case.parameters) * 2**PRECISION).astype(np.int64)

    def timed(phase: str, work: Callable[..., Any], *arguments: Any, **details: Any) -> Any:
        since = time.process_time()
        result = work(*arguments, **details)
        seconds[phase] = seconds.get(phase, 0.0) + time.process_time() - since
        return result

    inverses = [pow(blind * total, -1, public.n) for blind, total in zip(blinds, totals)]
    broadcast = timed("server", lambda: [key.encrypt(inverse) for inverse in inverses])
    pays = ROUNDS * layout.columns(case.parameters) > TABLES_PAY
    source = timed("once", TableResidues if pays else PublishedResidues, public)
    pairs = case.users * case.parameters
    factors = [blind * count * layout.lcm for blind, count in zip(blinds, counts)]
    coefficients = layout.truncate(vectors)
    turns: list[dict[str, float]] = []
    for _ in range(TURNS):
        before = dict(seconds)
        powers = timed("factors", raise_to_factors, public, broadcast, factors)
        timed("product", layout.truncate, vectors)
        products = timed("product", weighted_product, public, powers, coefficients, layout=layout)
        drawn = timed("rerand", layout.dithered, noise)
        fresh = timed("rerand", source.draw, len(products))
        packed = layout.pack(drawn)
        message = timed(
            "rerand", add_and_rerandomise, public, products, plaintexts=packed, residues=fresh
        )
        turn = {phase: seconds[phase] - before.get(phase, 0.0) for phase in PHASES}
        turn["silo"] = sum(turn.values())
        turn["phe"] = pairs * phe_pair(public.n, factors[0], coefficients[0])
        turn["factored"] = turn["factors"] + pairs * phe_pair(public.n, 1, coefficients[0])
        turns.append(turn)
    sums = timed("server", multiply, public, [message] + [[1] * len(message)] * (SILOS - 1))
    got = layout.unpack(
        timed("server", lambda: [key.decrypt(c) for c in sums]), public.n, case.parameters
    )
    weights = [layout.lcm * count // total for count, total in zip(counts, totals)]
    exact = np.array(weights, dtype=object) @ coefficients.astype(object) + np.array(
        drawn, dtype=object
    )
    assert got == exact.tolist()
    ratios = {
        f"{loop} ratio": compared([(turn["silo"], turn[loop]) for turn in turns])[2]
        for loop in ("phe", "factored")
    }
    medians = {name: float(np.median([turn[name] for turn in turns])) for name in turns[0]}
    sent = len(message) * public.ciphertext_bytes / 1e6
    return seconds | medians | ratios | {"sent": sent}


def phe_pair(n: int, factor: int, coefficients: np.ndarray, slice_size: int = 16) -> float:
    """Seconds of python-paillier for one (parameter, user) pair: the power, and the addition to the
    sum over users. Half of the coefficients are negative."""
    from phe import EncodedNumber, EncryptedNumber, PaillierPublicKey

    public = PaillierPublicKey(n)
    one = EncryptedNumber(public, public.raw_encrypt(secrets.randbelow(n)))
    sizes = np.abs(coefficients[:slice_size]).tolist()
    exponents = [(value if k % 2 else -value) * factor % n for k, value in enumerate(sizes)]
    since = time.process_time()
    total = one
    for exponent in exponents:
        total = total + one * EncodedNumber(public, exponent, 0)
    return (time.process_time() - since) / len(exponents)
