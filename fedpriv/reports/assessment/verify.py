"""Whether a report is what its signer made, and still fits a folder.

A page must end with its signature. Its key must be the one that the page names. The contents that
the page carries must make the same page again, so that nothing is shown beside them; that is
checked where this version of fedpriv makes pages as the report's did.
"""

from __future__ import annotations

import html
import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedpriv.crypto.signatures import VerificationKey
from fedpriv.errors import FedprivError
from fedpriv.reports.assessment import folder_files as files
from fedpriv.reports.assessment.contents import (
    SCHEMA,
    alarms,
    renderer_digest,
    run_folders,
    run_name,
)
from fedpriv.reports.assessment.page import JSON_BEGINS, JSON_ENDS, page
from fedpriv.reports.assessment.run_facts import DIGESTED
from fedpriv.reports.assessment.signing import (
    SIGNATURE,
    canonical,
    page_verifies,
    split_page,
    values_verify,
)
from fedpriv.reports.audit_file import AUDIT
from fedpriv.util.untrusted_files import RECORD_BYTES, read_bytes


class AlteredError(Exception):
    """A report that is not what it says. Its text is one line."""


@dataclass(frozen=True)
class Verified:
    """A report whose signature is valid.

    values: its contents.
    key: of the signer.
    rendered: whether the page was compared with one made anew from its contents; for a JSON file,
        None.
    """

    values: Mapping[str, Any]
    key: VerificationKey
    rendered: bool | None


def verify(path: Path, key: VerificationKey | None = None) -> Verified:
    """The contents of a signed report.

    key: the expected signer; None: the one that the report names.

    Raises AlteredError for a report without a valid signature, FedprivError for a file that cannot
    be read.
    """
    if path.is_dir():
        raise FedprivError(f"{path}: is a folder; name the report in it, {path / 'report.html'}")
    try:
        content = read_bytes(path, RECORD_BYTES)
    except (OSError, ValueError) as error:
        raise FedprivError(f"{path}: cannot be read ({files.text(error)})") from error
    is_json = content.lstrip()[:1] == b"{"
    found = _verified_json(content) if is_json else _verified_page(content)
    if found.key.low_order:
        raise AlteredError("its key has a low order: anybody can sign with it")
    if key is not None and key.raw != found.key.raw:
        raise AlteredError(f"signed with another key: {found.key.fingerprint}")
    return found


def changed_files(values: Mapping[str, Any], folder: Path) -> list[str]:
    """What differs between a folder and the one that a report is about: a line for each file."""
    from fedpriv.reports.assessment.run_facts import reported_files

    found = run_folders(folder)
    paths = {run_name(path, folder): path for path in found}
    if len(paths) < len(found):
        twins = Counter(run_name(path, folder) for path in found)
        return sorted(f"{name}: several folders" for name, count in twins.items() if count > 1)
    lines = [
        f"{name}: not in the report"
        for name in paths.keys() - {r["folder"] for r in values["runs"]}
    ]
    for run in values["runs"]:
        path = paths.get(run["folder"])
        if path is None:
            lines.append(f"{run['folder']}: missing")
            continue
        for name, digest in run["files"].items():
            file = path / name
            if not file.exists():
                lines.append(f"{run['folder']}/{name}: missing")
            elif files.file_digest(file) != digest:
                lines.append(f"{run['folder']}/{name}: changed")
        added = reported_files(path, public=bool(values.get("public"))) - run["files"].keys()
        lines += [f"{run['folder']}/{name}: not in the report" for name in added]
    return sorted(lines + _changed_audits(values, folder))


def _changed_audits(values: Mapping[str, Any], folder: Path) -> list[str]:
    """A line for each audit within the folder that is not the one of the report."""
    lines = []
    for audit in values.get("audits", []):
        path = folder / Path(audit["folder"]).name / AUDIT
        if path.is_file() and files.file_digest(path) != audit["file"]:
            lines.append(f"{audit['folder']}/{AUDIT}: changed")
    return lines


UNSIGNED = (
    "it was never signed, or the signature was cut off, so nobody can tell whether it was altered; "
    "fedpriv report FOLDER --sign KEY makes a signed one"
)


def _verified_page(content: bytes) -> Verified:
    signed, ending = split_page(content)
    if ending is None:
        raise AlteredError(f"it has no signature at its end: {UNSIGNED}")
    key, signature = ending
    if not page_verifies(signed, key, signature):
        raise AlteredError("altered: the signature does not fit")
    values = _contents_of(signed)
    _require_named(values, key)
    _require_fields(values)
    same = values.get("renderer") == renderer_digest()
    if same and _rendered(values) != signed:
        raise AlteredError("the page shows something else than its contents, and was signed so")
    return Verified(values, VerificationKey(key), rendered=same)


def _verified_json(content: bytes) -> Verified:
    try:
        values = json.loads(content)
        if not isinstance(values, dict) or canonical(values) != content:
            raise AlteredError("altered: not the bytes that its values are written as")
        if SIGNATURE not in values:
            raise AlteredError(f"it has no signature: {UNSIGNED}")
        written = values.pop(SIGNATURE)
        signature = bytes.fromhex(written)
        if signature.hex() != written:  # capitals or spaces: another file of the same signature
            raise AlteredError("altered: not the bytes that its values are written as")
        key = bytes.fromhex(values["signer"]["key"])
        whole = values_verify(values, key, signature)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise AlteredError("no signed report: altered, or not signed") from error
    if not whole or values.get("schema") != SCHEMA:
        raise AlteredError("altered: the signature does not fit")
    _require_fields(values)
    return Verified(values, VerificationKey(key), rendered=None)


def _contents_of(signed: bytes) -> dict[str, Any]:
    try:
        shown = signed.decode().rpartition(JSON_BEGINS)[2].partition(JSON_ENDS)[0]
        values = json.loads(html.unescape(shown))
        if not isinstance(values, dict) or values.get("schema") != SCHEMA:
            raise ValueError(SCHEMA)
    except (ValueError, RecursionError) as error:
        raise AlteredError(
            "it carries no contents of the schema that this version knows"
        ) from error
    return values


def _rendered(values: Mapping[str, Any]) -> bytes:
    """The page of contents that a stranger may have written; empty if they make none, or if they
    leave out what their runs demand to be said first."""
    try:
        return page(dict(values)) if values["alarms"] == alarms(values["runs"]) else b""
    except (KeyError, IndexError, TypeError, ValueError, AttributeError):
        return b""


def _require_fields(values: Mapping[str, Any]) -> None:
    """Raise AlteredError unless the values that are printed or compared are there."""
    runs = values.get("runs")
    fits = all(isinstance(values.get(name), str) for name in ("made", "folder"))
    audits = values.get("audits", [])
    fits = fits and isinstance(audits, list) and all(map(_has_digest, audits))
    if not fits or not isinstance(runs, list) or not all(map(_has_files, runs)):
        raise AlteredError("its contents do not fit the schema, and were signed so")


def _has_digest(audit: object) -> bool:
    return isinstance(audit, dict) and all(
        isinstance(audit.get(name), str) for name in ("folder", "file")
    )


def _has_files(run: object) -> bool:
    if not isinstance(run, dict) or not isinstance(run.get("folder"), str):
        return False
    files_of_run = run.get("files")
    return isinstance(files_of_run, dict) and set(files_of_run) <= set(DIGESTED)


def _require_named(values: Mapping[str, Any], key: bytes) -> None:
    signer = values.get("signer")
    if not isinstance(signer, dict) or signer.get("key") != key.hex():
        raise AlteredError("signed with another key than the page names")
