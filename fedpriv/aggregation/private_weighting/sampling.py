"""How a query samples users so that no party knows the sample: the server orders ciphertexts, the
silos choose a place.

For a rate a / b the server offers b ciphertexts for each user, a of them real, in a uniformly
random order. All silos take the one at the same uniformly random place. Server and silos each know
half of the draw. A user is sampled with probability a / b, independently of other users and
queries.
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from fedpriv.crypto.digest import digest
from fedpriv.crypto.uniform_integers import shared_integers
from fedpriv.errors import ConfigError
from fedpriv.rounds.query import Query

MAX_OFFERED = 100


def as_options(rate: float) -> Fraction:
    """`rate` as a fraction a / b: for each user the server offers b ciphertexts, of which a hold
    the inverse and the others zero. Raises ConfigError unless b is at most `MAX_OFFERED`."""
    fraction = Fraction(rate).limit_denominator(MAX_OFFERED)
    if float(fraction) != rate:
        allowed = (
            f"with aggregation.oblivious=true a fraction a / b with b up to {MAX_OFFERED}, such "
            "as 0.25 or 0.3"
        )
        raise ConfigError("algo.user_rate", rate, allowed)
    return fraction


def options_to_hide(rate: float, oblivious: bool) -> Fraction | None:
    """The server's offers; None if it may know the sample, or if everybody is in it."""
    return as_options(rate) if oblivious and rate < 1 else None


def orders(options: Fraction, n_users: int, query: Query) -> np.ndarray:
    """The server's half: (n_users, b) bool, a of every row true."""
    drawn = query.streams.secret(query.stream("oblivious order"), query.round).random(
        n_users * options.denominator
    )
    return np.argsort(drawn.reshape(n_users, options.denominator), axis=1) < options.numerator


def choices(options: Fraction, n_users: int, query: Query, *, seed: bytes) -> list[int]:
    """The silos' half: a place below b for each user, from the silos' common seed. A seeded
    simulation draws it from its own stream, so that the sample repeats."""
    if query.streams.system:
        purpose = digest("private weighting choice", *query.serial)
        return shared_integers(options.denominator, n_users, seed=seed, purpose=purpose)
    stream = query.streams.generator(query.stream("oblivious choice"), query.round)
    return [int(place) for place in stream.integers(0, options.denominator, n_users)]


def transfer_session(silo: str, query: Query) -> bytes:
    """Names the oblivious transfers between the server and a silo in a query."""
    return digest("private weighting transfer", silo, *query.serial)
