"""Frames as honest parties send them, for tests that damage them."""

import os
from functools import lru_cache

import numpy as np

from fedpriv.parties.messages import encode
from fedpriv.parties.post import Message
from fedpriv.rounds.query import Broadcast


def contents(silos, size):
    names = [f"silo{index}" for index in range(silos)]
    return {
        "roster": {name: (os.urandom(32), os.urandom(32), os.urandom(64)) for name in names},
        "keys": {name: os.urandom(32) for name in names},
        "sealed": (os.urandom(32), {name: os.urandom(120) for name in names}),
        "sets": (names, names[::2]),
        "signatures": {name: os.urandom(64) for name in names},
        "shares": {name: np.arange(9, dtype=np.uint32) for name in names},
        "masked": np.arange(size, dtype=np.uint64),
        "vectors": Broadcast(
            {"params": np.ones(size), "control": np.ones(size)}, np.ones(silos, dtype=bool)
        ),
        "counts": np.arange(size),
        "ciphertexts": os.urandom(8 * size),
        "offers": [os.urandom(200) for _ in names],
        "summed": tuple(names),
    }


@lru_cache(maxsize=1)
def frames(silos, size):
    """Encoded messages, by what they hold."""
    stamp = os.urandom(16), 3, 0, "MaskedInputCollection"
    return {
        kind: encode(Message(*stamp, said, os.urandom(64)))
        for kind, said in contents(silos, size).items()
    }
