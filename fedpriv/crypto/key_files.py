"""Private keys in files: NAME.key holds one party's key as 64 hexadecimal digits, readable for its
owner only.

Each party needs its own file, and its copy of the roster, on its own machine.
"""

from __future__ import annotations

import os
import re
import stat
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from fedpriv.crypto.roster import Identity, Roster
from fedpriv.crypto.signatures import KEY_BYTES, SigningKey
from fedpriv.errors import FedprivError
from fedpriv.util.durable_files import fsync_folder, replace_file
from fedpriv.util.untrusted_files import read_bytes

PRIVATE = 0o600
"""Permissions of a key's file."""
LARGEST_FILE = 1024
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
"""A party's name, which is also the name of a file."""


def require_name(name: str) -> str:
    """The name. Raises FedprivError for one that cannot name a party and its file."""
    if not NAME.fullmatch(name):
        raise FedprivError(f"{name}: a party's name has letters, digits and _ . - only")
    return name


def key_path(folder: Path, name: str) -> Path:
    """The file of a party's private key."""
    return folder / f"{require_name(name)}.key"


def write_key(path: Path, key: SigningKey) -> None:
    """Replace a key's file. A missing folder is created for the owner only."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    replace_file(path, f"{key.raw.hex()}\n".encode(), mode=PRIVATE)
    fsync_folder(path.parent)


def require_private(path: Path) -> None:
    """Raise FedprivError for a key's file that others than its owner can read, OSError without
    one."""
    mode = stat.S_IMODE(os.stat(path).st_mode)
    if mode & 0o077:
        raise FedprivError(
            f"{path}: others can read it (mode {mode:04o}); chmod 600 it, or make a new key"
        )


def read_key(path: Path) -> SigningKey:
    """The key in a file. Raises FedprivError for a file that is missing, is no key, or can be read
    by others than its owner."""
    try:
        require_private(path)
        text = read_bytes(path, LARGEST_FILE).decode("ascii").strip()
        if not re.fullmatch(f"[0-9a-f]{{{2 * KEY_BYTES}}}", text):
            raise ValueError
        return SigningKey(bytes.fromhex(text))
    except OSError as error:
        raise FedprivError(f"{path}: {error.strerror or error}") from error
    except ValueError:  # without the text, which may be a damaged key
        raise FedprivError(f"{path}: not a private key of fedpriv keys") from None


@dataclass(frozen=True)
class KeyFiles:
    """Where a party finds its key and the roster, on its own machine.

    name: of the party.
    keys: folder with its private key.
    roster: file with everybody's verification keys.
    """

    name: str
    keys: str
    roster: str

    def identity(self) -> Identity:
        """Read both. Raises FedprivError for a key that is missing, or is not the one in use in
        the roster."""
        path = key_path(Path(self.keys), self.name)
        roster = read_roster(self.roster)
        try:
            return Identity(self.name, read_key(path), roster)
        except FedprivError as error:
            if not str(error).startswith("roster:"):
                raise
            spare = path.with_name(path.name + ".new")
            hint = f"; {spare} is of a rotation that was cut off: fedpriv keys rotate ends it"
            raise FedprivError(
                f"{path} does not fit {self.roster}: {error}{hint if spare.exists() else ''}"
            ) from error


def read_roster(path: str | Path) -> Roster:
    """The roster in a file. Raises FedprivError that names the file."""
    try:
        about = os.stat(path)
        return _roster(str(path), about.st_ino, about.st_mtime_ns, about.st_size)
    except OSError as error:
        raise FedprivError(f"{path}: {error.strerror or error}") from error
    except FedprivError as error:
        if str(path) in str(error):
            raise
        raise FedprivError(f"{path}: {error}") from error


@lru_cache(maxsize=1)
def _roster(path: str, *version: int) -> Roster:
    """The parties of one process share the roster, and what it keeps: reading it once for each of
    a thousand silos would take minutes."""
    return Roster.read(Path(path))
