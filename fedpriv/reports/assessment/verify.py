"""Whether a report is what its signer made, and still fits a folder.

A page must end with its signature. Its key must be the one that the page names. The contents that
the page carries must make the same page again, so that nothing is shown beside them; that is
checked where this version of fedpriv makes pages as the report's did.
"""

from __future__ import annotations

import html
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jinja2 import TemplateError

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
from fedpriv.reports.assessment.run_facts import DIGESTED, reported_files
from fedpriv.reports.assessment.signing import (
    SIGNATURE,
    canonical,
    page_verifies,
    split_page,
    values_verify,
)
from fedpriv.reports.audit_file import AUDIT
from fedpriv.util.untrusted_files import RECORD_BYTES, read_bytes, readable


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
    with readable(path):
        content = read_bytes(path, RECORD_BYTES)
    is_json = content.lstrip()[:1] == b"{"
    try:
        found = _verified_json(content) if is_json else _verified_page(content)
        _use_fields(found.values)
    except UNFIT as error:
        raise AlteredError("altered, or its contents do not fit the schema") from error
    if found.key.low_order:
        raise AlteredError("its key has a low order: anybody can sign with it")
    if key is not None and key.raw != found.key.raw:
        raise AlteredError(f"signed with another key: {found.key.fingerprint}")
    return found


def changed_files(values: Mapping[str, Any], folder: Path) -> list[str]:
    """What differs between a folder and the one that a report is about: a line for each file."""
    found = run_folders(folder)
    reported = [run["folder"] for run in values["runs"]]
    alone = found == [folder] and len(reported) == 1  # a run is the same in a folder of any name
    names = reported if alone else [run_name(path, folder) for path in found]
    paths = dict(zip(names, found))
    if len(paths) < len(found):
        return sorted(f"{name}: several folders" for name in paths if names.count(name) > 1)
    lines = [f"{name}: not in the report" for name in paths.keys() - reported]
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
    lines += [
        f"{audit['folder']}/{AUDIT}: changed"
        for audit in values.get("audits", [])
        if (file := folder / Path(audit["folder"]).name / AUDIT).is_file()
        and files.file_digest(file) != audit["file"]
    ]
    return sorted(lines)


UNFIT = (
    *(LookupError, TypeError, ValueError, AttributeError, ArithmeticError, RecursionError),
    TemplateError,
)
"""Errors that contents of a stranger may cause."""
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
    inside = signed.decode().rpartition(JSON_BEGINS)[2].partition(JSON_ENDS)[0]
    values = json.loads(html.unescape(inside))
    if values["schema"] != SCHEMA:
        raise AlteredError("it carries no contents of the schema that this version knows")
    if values["signer"]["key"] != key.hex():
        raise AlteredError("signed with another key than the page names")
    same = values["renderer"] == renderer_digest()
    if same and (values["alarms"] != alarms(values["runs"]) or page(values) != signed):
        raise AlteredError("the page shows something else than its contents, and was signed so")
    return Verified(values, VerificationKey(key), rendered=same)


def _verified_json(content: bytes) -> Verified:
    values = json.loads(content)
    written = values.pop(SIGNATURE, None)
    if written is None:
        raise AlteredError(f"it has no signature: {UNSIGNED}")
    signature = bytes.fromhex(written)
    # Capitals or spaces make another file of the same signature.
    if canonical(values | {SIGNATURE: signature.hex()}) != content:
        raise AlteredError("altered: not the bytes that its values are written as")
    key = bytes.fromhex(values["signer"]["key"])
    if not values_verify(values, key, signature) or values["schema"] != SCHEMA:
        raise AlteredError("altered: the signature does not fit")
    return Verified(values, VerificationKey(key), rendered=None)


def _use_fields(values: Mapping[str, Any]) -> None:
    """Use every field that is printed or compared with a folder as it is used there, so that
    contents that do not fit raise an error here. Files outside a run's folder are refused."""
    texts = [values["made"], values["folder"]]
    for run in values["runs"]:
        texts += [run["folder"], *run["files"].values()]
        if not set(run["files"]) <= set(DIGESTED):
            raise ValueError("files that no report names")
    for audit in values.get("audits", []):
        texts += [audit["folder"], audit["file"]]
    if not all(isinstance(one, str) for one in texts):
        raise TypeError("a text is expected")
