"""Phases of private weighting that no other aggregation has."""

from __future__ import annotations

from fedpriv.crypto.prg import KEY_BYTES
from fedpriv.crypto.sealing import TAG_BYTES

SEED = "sealed seed"
REQUESTS = "requests"
OFFERS = "offers"

SEALED_SEED = KEY_BYTES + TAG_BYTES
"""Bytes of the sealed common seed."""
