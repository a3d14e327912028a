"""What server and silos say to each other in private weighting, beside what all aggregations
say.
"""

from __future__ import annotations

from fedpriv.crypto.prg import KEY_BYTES
from fedpriv.crypto.sealing import TAG_BYTES

SEED = "sealed seed"
REQUESTS = "requests"
OFFERS = "offers"

SEALED_SEED = KEY_BYTES + TAG_BYTES
"""Bytes of the common seed on its way to another silo."""
