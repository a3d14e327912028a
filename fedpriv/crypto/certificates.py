"""TLS keys and certificates of parties. There is no authority: each party makes its own, and the
others hold the certificate under its name."""

from __future__ import annotations

import datetime
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from fedpriv.crypto.key_files import PRIVATE, require_name
from fedpriv.errors import FedprivError
from fedpriv.util.durable_files import fsync_folder, replace_file

YEARS = 2
"""How long a certificate is valid."""


def new_certificate(name: str, keys: Path, certificates: Path) -> tuple[Path, Path]:
    """Make a TLS key, NAME.tls, and its certificate, NAME.pem. Returns both files. Raises
    FedprivError if one of them exists."""
    secret, public = keys / f"{require_name(name)}.tls", certificates / f"{name}.pem"
    for path in (secret, public):
        if path.exists():
            raise FedprivError(f"{path}: exists; remove it to make a new one")
    key = ec.generate_private_key(ec.SECP256R1())
    owner = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(owner)
        .issuer_name(owner)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=365 * YEARS))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    form, open_ = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    secret.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    public.parent.mkdir(parents=True, exist_ok=True)
    replace_file(secret, key.private_bytes(pem, form, open_), mode=PRIVATE)
    replace_file(public, certificate.public_bytes(pem))
    fsync_folder(secret.parent)
    return secret, public


def outdated(name: str, certificate: bytes) -> str:
    """Why a party's certificate does not hold now, in one line; empty: it does. Raises ValueError
    for other bytes."""
    known = x509.load_pem_x509_certificate(certificate)
    now = datetime.datetime.now(datetime.UTC)
    if now > known.not_valid_after_utc:
        return f"the certificate of {name} expired on {known.not_valid_after_utc:%Y-%m-%d}"
    if now < known.not_valid_before_utc:
        since = f"{known.not_valid_before_utc:%Y-%m-%d}"
        return (
            f"the certificate of {name} begins on {since}, and the clock here says {now:%Y-%m-%d}"
        )
    return ""
