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
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from fedpriv.crypto.digest import digest
from fedpriv.crypto.signatures import SigningKey, VerificationKey
from fedpriv.errors import ConfigError
from fedpriv.util.untrusted_files import read_bytes

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
    for load in (serialization.load_pem_private_key, serialization.load_ssh_private_key):
        key = _loaded(partial(load, password=None), path)
        if isinstance(key, Ed25519PrivateKey):
            return SigningKey(key.private_bytes_raw())
    raise ConfigError("--sign", path, "an Ed25519 private key in PEM, without a password")


def verification_key(path: Path) -> VerificationKey:
    """The public key in a PEM or OpenSSH file. Raises ConfigError for `--key`."""
    for load in (serialization.load_pem_public_key, serialization.load_ssh_public_key):
        key = _loaded(load, path)
        if isinstance(key, Ed25519PublicKey):
            return VerificationKey(key.public_bytes_raw())
    raise ConfigError("--key", path, "an Ed25519 public key in PEM")


def _loaded(load: Callable[[bytes], object], path: Path) -> object:
    """The key in a file; None if there is none of this form."""
    try:
        return load(read_bytes(path, KEY_BYTES))
    except (OSError, ValueError, TypeError, UnsupportedAlgorithm):
        return None


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
