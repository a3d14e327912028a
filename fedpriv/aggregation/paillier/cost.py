"""What a round of private weighting will take, in seconds and bytes, before it starts."""

from __future__ import annotations

from dataclasses import dataclass

from fedpriv.aggregation.paillier.keys import PublicKey
from fedpriv.aggregation.paillier.layout import Layout


@dataclass(frozen=True)
class Cost:
    """Seconds and bytes of one silo and of the server in one round; `setup` seconds are a silo's, once a run."""

    setup: float
    silo: float
    server: float
    upload: int
    download: int

    def __str__(self) -> str:
        return (
            f"private weighting, one round: silo {self.silo:.1f} s (once {self.setup:.1f} s), "
            f"server {self.server:.1f} s; upload {self.upload / 1e6:.2f} MB, download {self.download / 1e6:.2f} MB"
        )


@dataclass(frozen=True)
class Timings:
    """Seconds of single operations modulo n^2 on this machine."""

    multiplication: float
    power: float
    private_power: float

    @staticmethod
    def measure(bits: int) -> Timings:
        """Time them for keys of `bits` bits; takes a few tens of milliseconds."""
        raise NotImplementedError


def predict(layout: Layout, users: int, dimension: int, timings: Timings, workers: int = 1, rounds: int = 1) -> Cost:
    """Cost of a round for a silo that holds `users` users, and for the server of `layout.silos` silos with
    `layout.users` users. Bytes are those of ciphertexts alone."""
    size = PublicKey((1 << layout.key_bits) - 1).ciphertext_bytes
    return Cost(0.0, 0.0, 0.0, layout.columns(dimension) * size, layout.users * size)
