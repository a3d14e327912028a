"""The secret of who holds the data, a file of their own outside all run folders.

A digest of private records confirms a right guess of them. A run publishes digests keyed with this
secret (HMAC-SHA256): equal data of one holder have equal digests, and nobody else can check a
guess. The file is `$XDG_STATE_HOME/fedpriv/holder.key`, by default below ~/.local/state.
"""

from __future__ import annotations

import hmac
import os
import secrets
from contextlib import suppress
from functools import cache
from pathlib import Path

from fedpriv.crypto.key_files import read_key, write_key
from fedpriv.crypto.signatures import SigningKey
from fedpriv.util.logs import LOGGER


def keyed(text: str) -> str:
    """The digest of a text, hexadecimal, which only the holder can make."""
    return hmac.new(_secret(secret_path()), text.encode(), "sha256").hexdigest()


def secret_path() -> Path:
    """Where the secret is on this machine."""
    state = os.environ.get("XDG_STATE_HOME") or os.path.expanduser("~/.local/state")
    return Path(state) / "fedpriv" / "holder.key"


@cache
def _secret(path: Path) -> bytes:
    """The secret in a file, which is made if it is missing. Raises FedprivError for a file that is
    no secret, or that others can read."""
    try:
        if not path.exists():
            fresh = path.with_name(f"{path.name}.{secrets.token_hex(8)}")
            write_key(fresh, SigningKey.generate())
            with suppress(FileExistsError):  # another process was faster
                os.link(fresh, path)
            fresh.unlink()
    except OSError as error:
        LOGGER.warning(
            "%s: cannot be written (%s): no other process can resume or compare this run; set "
            "XDG_STATE_HOME to a folder that can be written",
            path,
            error.strerror,
        )
        return secrets.token_bytes(32)
    return read_key(path).raw
