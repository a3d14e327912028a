"""Signatures of reports: Ed25519 over every byte of a page or a JSON file.

A page ends with one line, a comment of fixed form that holds key and signature. The signature
covers all bytes before it, and nothing may follow it. A JSON file has the signature as its member
`signature`. It is canonical: the file must be the bytes that its own values are written as, so no
space, order or repeated key can differ. Both files name the key in what is signed; a signature
under another key is refused.

A signature says that the owner of a key has made this file. It does not say whose key it is, nor
that a folder's files were true.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from fedpriv.crypto.digest import digest
from fedpriv.crypto.signatures import SigningKey, VerificationKey
from fedpriv.errors import ConfigError
from fedpriv.util.untrusted_files import read_bytes

Key = TypeVar("Key", Ed25519PrivateKey, Ed25519PublicKey)
KEY_BYTES = 2**16
"""Size limit of a key's file."""
CONTEXT = "fedpriv report/1"
TRAILER = re.compile(
    rb"<!-- fedpriv-report-signature/1 key=([0-9a-f]{64}) signature=([0-9a-f]{128}) -->\n"
)
TRAILER_BYTES = 52 + 64 + 128
SIGNATURE = "signature"


def signing_key(path: Path) -> SigningKey:
    """The private key in a PEM or OpenSSH file. Raises ConfigError for `--sign`."""
    loaders = (
        partial(serialization.load_pem_private_key, password=None),
        partial(serialization.load_ssh_private_key, password=None),
    )
    allowed = "an Ed25519 private key in PEM, without a password"
    return SigningKey(_key("--sign", path, loaders, Ed25519PrivateKey, allowed).private_bytes_raw())


def verification_key(path: Path) -> VerificationKey:
    """The public key in a PEM or OpenSSH file. Raises ConfigError for `--key`."""
    loaders = serialization.load_pem_public_key, serialization.load_ssh_public_key
    key = _key("--key", path, loaders, Ed25519PublicKey, "an Ed25519 public key in PEM")
    return VerificationKey(key.public_bytes_raw())


def _key(
    option: str,
    path: Path,
    loaders: Iterable[Callable[[bytes], object]],
    cls: type[Key],
    allowed: str,
) -> Key:
    """The key of class `cls` that the first fitting loader finds in a file."""
    for load in loaders:
        with suppress(OSError, ValueError, TypeError, UnsupportedAlgorithm):
            key = load(read_bytes(path, KEY_BYTES))
            if isinstance(key, cls):
                return key
    raise ConfigError(option, path, allowed)


def canonical(values: Mapping[str, Any]) -> bytes:
    """The only bytes that these values are written as."""
    shown = json.dumps(values, indent=1, sort_keys=True, ensure_ascii=False, allow_nan=False)
    return (shown + "\n").encode()


def sign_page(page: bytes, key: SigningKey) -> bytes:
    """The page with its signature as the last line."""
    raw = key.verification_key.raw
    signature = key.sign(_statement("page", raw, page))
    trailer = f"<!-- fedpriv-report-signature/1 key={raw.hex()} signature={signature.hex()} -->\n"
    return page + trailer.encode()


def sign_values(values: Mapping[str, Any], key: SigningKey) -> dict[str, Any]:
    """The values with their signature."""
    raw = key.verification_key.raw
    return {**values, SIGNATURE: key.sign(_statement("json", raw, canonical(values))).hex()}


def split_page(content: bytes) -> tuple[bytes, tuple[bytes, bytes] | None]:
    """The signed bytes of a page, and (key, signature); None if the page does not end with them."""
    found = TRAILER.fullmatch(content[-TRAILER_BYTES:])
    if found is None:
        return content, None
    key, signature = (bytes.fromhex(part.decode()) for part in found.groups())
    return content[:-TRAILER_BYTES], (key, signature)


def page_verifies(page: bytes, key: bytes, signature: bytes) -> bool:
    """Whether the owner of `key` has signed these bytes of a page."""
    return VerificationKey(key).verifies(signature, _statement("page", key, page))


def values_verify(values: Mapping[str, Any], key: bytes, signature: bytes) -> bool:
    """Whether the owner of `key` has signed these values, without their signature."""
    return VerificationKey(key).verifies(signature, _statement("json", key, canonical(values)))


def _statement(kind: str, key: bytes, content: bytes) -> bytes:
    return digest(CONTEXT, kind, key, content)
