"""What a round of private weighting will take, in seconds and bytes, before it starts."""

from __future__ import annotations

import random
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass

from gmpy2 import mpz, powmod

from fedpriv.aggregation.private_weighting import packed_tables
from fedpriv.crypto.paillier import pairs, residues
from fedpriv.crypto.paillier.keys import EncryptionKey
from fedpriv.encoding.slot_layout import SlotLayout

LARGE_TABLE = 2**13


@dataclass(frozen=True)
class Timings:
    """Seconds of single operations on this machine: a product of a pair by one from a large table
    and a squaring of a pair; a product modulo n^2; and a power to half of n's length modulo a
    prime's square, which the key holder does."""

    multiplication: float
    squaring: float
    full_multiplication: float
    half_power: float

    @staticmethod
    def measure(bits: int) -> Timings:
        """Time each for keys of `bits` bits: the fastest of several turns, a few tens of
        milliseconds in all."""
        n = mpz(secrets.randbits(bits) | 1 << (bits - 1) | 1)
        square = n * n
        half = mpz(1) << (bits // 2)
        number = mpz(secrets.randbelow(int(square)))
        pair = pairs.split(number, n)
        table = [
            (pair[0] - i, pair[1] - i) for i in range(LARGE_TABLE)
        ]  # beyond the processor's inner caches
        random.Random(0).shuffle(table)
        unseen = iter(table)
        return Timings(
            multiplication=_fastest(
                lambda: [pairs.times(pair, next(unseen), n) for _ in range(100)]
            )
            / 100,
            squaring=_fastest(lambda: pairs.doublings(pair, 100, n)) / 100,
            full_multiplication=_fastest(lambda: [number * number % square for _ in range(100)])
            / 100,
            half_power=_fastest(lambda: powmod(number, half - 1, n)),
        )

    def seconds(self, work: pairs.Operations) -> float:
        """Time of operations on pairs."""
        return work.multiplications * self.multiplication + work.squarings * self.squaring


@dataclass(frozen=True)
class Cost:
    """Seconds and bytes of one silo and of the server in a round; `setup` seconds are a silo's,
    once a run.

    factors: of raising the server's ciphertexts to them. Bytes are those of ciphertexts alone.
    """

    setup: float
    factors: float
    product: float
    rerandomising: float
    server: float
    upload: int
    download: int
    plan: packed_tables.TablePlan

    @property
    def silo(self) -> float:
        """Seconds of a silo in a round."""
        return self.factors + self.product + self.rerandomising

    def __str__(self) -> str:
        return (
            f"private weighting, a round: silo {self.silo:.2f} s (and once {self.setup:.2f} s), "
            "server "
            f"{self.server:.2f} s; a silo receives {self.download / 1e6:.3f} MB and sends "
            f"{self.upload / 1e6:.3f} MB; "
            f"{self.plan}"
        )


def predict(
    layout: SlotLayout,
    users: int,
    dimension: int,
    *,
    timings: Timings,
    workers: int = 1,
    rounds: int = 1,
) -> Cost:
    """Cost of a round for a silo that holds `users` users, one at least, and for the server of
    `layout.silos` silos with `layout.users` users, in a run of `rounds` rounds. `workers` are the
    silo's processes."""
    bits = layout.key_bits
    columns = layout.columns(dimension)
    block = min(
        dimension, -(-columns // workers) * layout.slots
    )  # the largest share of one process
    plan = packed_tables.best_plan(layout, users, block, memory=packed_tables.MEMORY // workers)
    prepared = residues.tables_pay(bits, columns * rounds)
    source = residues.TableResidues if prepared else residues.PublishedResidues
    size = EncryptionKey((1 << bits) - 1).ciphertext_bytes
    return Cost(
        setup=timings.seconds(residues.TableResidues.preparation(bits)) if prepared else 0.0,
        factors=timings.seconds(pairs.power_work(bits)) * -(-users // workers),
        product=timings.seconds(plan.work),
        rerandomising=columns
        * (timings.seconds(source.one(bits)) + 3 * timings.full_multiplication),
        server=layout.users * (2 * timings.half_power + 3 * timings.full_multiplication)
        + columns * (2 * timings.half_power + (layout.silos - 1) * timings.full_multiplication),
        upload=columns * size,
        download=layout.users * size,
        plan=plan,
    )


def _fastest(work: Callable[[], object], turns: int = 5) -> float:
    """Seconds; the fastest turn is the one that nothing disturbed."""
    times = []
    for _ in range(turns):
        since = time.perf_counter()
        work()
        times.append(time.perf_counter() - since)
    return min(times)
