"""Writing a bundle."""

from __future__ import annotations

import csv
import hashlib
import io
import json
from pathlib import Path
from typing import Any

from safetensors.numpy import save

from fedpriv.bundles.bundle import (
    CARD,
    CERTIFICATE,
    FORMAT,
    KINDS,
    MANIFEST,
    NETWORK,
    ONNX,
    WEIGHTS,
    Bundle,
)
from fedpriv.bundles.card import card
from fedpriv.util.durable_files import replace_file


def write_bundle(bundle: Bundle, folder: Path) -> None:
    """Write a bundle. A file for other programs that is there already would be of other weights,
    and goes."""
    folder.mkdir(parents=True, exist_ok=True)
    rows = io.StringIO(newline="")
    if bundle.certificate:
        table = csv.DictWriter(rows, list(bundle.certificate[0]), lineterminator="\n")
        table.writeheader()
        table.writerows(bundle.certificate)
    files = {
        WEIGHTS: save(dict(bundle.tensors)),
        NETWORK: _json(bundle.network or {}),
        CERTIFICATE: rows.getvalue().encode(),
    }
    digests = {name: hashlib.sha256(content).hexdigest() for name, content in files.items()}
    files[CARD] = card(bundle).encode()
    files[MANIFEST] = _json(
        {"format": FORMAT, **{name: getattr(bundle, name) for name in KINDS}, "digests": digests}
    )
    (folder / ONNX).unlink(missing_ok=True)
    for name, content in files.items():
        replace_file(folder / name, content)


def _json(tree: Any) -> bytes:
    return (json.dumps(tree, indent=1, ensure_ascii=False) + "\n").encode()
