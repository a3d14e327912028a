"""Values as 32 bytes: SHA-256 of each part with its length before it."""

from __future__ import annotations

import hashlib

DIGEST_BYTES = 32


def digest(*parts: str | bytes | int) -> bytes:
    """A digest of a list of values. Different lists have different inputs: lengths are included."""
    pieces: list[bytes] = []
    for part in parts:
        raw = part if isinstance(part, bytes) else str(part).encode()
        pieces += len(raw).to_bytes(8, "little"), raw
    return hashlib.sha256(b"".join(pieces)).digest()
