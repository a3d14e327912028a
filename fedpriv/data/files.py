"""Where a data set's files come from: the user's folder, or the user's cache, filled by a download
on first use.

Search order: `data.root`, then the variable FEDPRIV_DATA, then `$XDG_CACHE_HOME/fedpriv` or
`~/.cache/fedpriv`. Only the cache is ever written to: a folder that the user names is read as it
is.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path

from fedpriv.errors import DataError, require

TIMEOUT = 30
"""Seconds without a byte after which a download fails."""

CHUNK = 1 << 16
"""Bytes read at a time."""


@dataclass(frozen=True)
class RemoteFile:
    """One file of a data set.

    places: accepted paths below the data folder; the first that exists is read, a download goes to
        the last.
    urls: addresses, tried in this order.
    digest: "sha256:<hex>" or "md5:<hex>" of the download, or None when its home publishes none that
        lasts.
    """

    places: tuple[str, ...]
    urls: tuple[str, ...]
    digest: str | None = None


def locate(file: RemoteFile, root: str | None) -> Path:
    """Path of `file`, downloaded into the cache if no folder is named. Raises ConfigError or
    DataError."""
    chosen, folder = chosen_folder(root)
    for place in file.places:
        if (folder / place).is_file():
            return folder / place
    if chosen:
        raise DataError(
            f"data.root={chosen}: no {' or '.join(file.places)} in this folder; put it there "
            f"(from {file.urls[0]}) "
            "or leave data.root and FEDPRIV_DATA empty to download it"
        )
    return download(file, folder)


def chosen_folder(root: str | None) -> tuple[str | None, Path]:
    """The folder that the user names, as it is named, or None and the cache. Raises ConfigError."""
    chosen = root or os.environ.get("FEDPRIV_DATA")
    folder = Path(chosen).expanduser() if chosen else cache_dir()
    if chosen:
        require(
            folder.is_dir(), "data.root", chosen, "an existing folder (also set by FEDPRIV_DATA)"
        )
    return chosen, folder


def cache_dir() -> Path:
    """The folder of downloaded data sets."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "fedpriv"


def download(file: RemoteFile, folder: Path) -> Path:
    """Fetch `file` into `folder`, whole and checked or not at all. Raises DataError after the last
    address failed."""
    target = folder / file.places[-1]
    failures = []
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        for url in file.urls:
            try:
                _fetch(url, target, file.digest)
                return target
            except (
                OSError,
                HTTPException,
                _RefusedError,
            ) as error:  # URLError and timeouts are OSErrors
                failures.append(f"{url} ({_reason(error)})")
    except OSError as error:
        failures.append(f"{file.urls[0]} ({_reason(error)})")
    raise DataError(
        f"{target.name}: cannot download from {' nor from '.join(failures)}; "
        f"download it by hand to {target}, or to {file.places[-1]} below a folder named by "
        "data.root"
    )


class _RefusedError(Exception):
    """A download arrived, but is not the file."""


def _fetch(url: str, target: Path, digest: str | None) -> None:
    """Write `url` to a temporary file beside `target`, check it, and move it into place."""
    from urllib.request import Request, urlopen

    handle, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.", suffix=".tmp")
    try:
        with (
            os.fdopen(handle, "wb") as out,
            urlopen(Request(url, headers={"User-Agent": "fedpriv"}), timeout=TIMEOUT) as body,
        ):
            length = int(body.headers.get("Content-Length") or 0)
            found, size = _copy(
                body.read, out.write, length=length, name=target.name, digest=digest
            )
        if length and size != length:
            raise _RefusedError(f"the connection ended after {size} of {length} bytes")
        if not size:
            raise _RefusedError("the answer is empty")
        if digest and found != digest.partition(":")[2]:
            raise _RefusedError(
                f"wrong checksum: {digest.partition(':')[0]} is {found}, not "
                f"{digest.partition(':')[2]}"
            )
        os.chmod(name, 0o644)
        os.replace(name, target)
    finally:
        Path(name).unlink(missing_ok=True)


def _copy(
    read: Callable[[int], bytes],
    write: Callable[[bytes], int],
    *,
    length: int,
    name: str,
    digest: str | None,
) -> tuple[str, int]:
    """Copy everything with a progress bar; the hex digest and the number of bytes."""
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

    checksum = hashlib.new(digest.partition(":")[0] if digest else "sha256", usedforsecurity=False)
    console = Console(stderr=True)
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(),
        TimeRemainingColumn(),
    )
    size = 0
    with Progress(
        *columns, console=console, transient=True, disable=not console.is_terminal
    ) as progress:
        bar = progress.add_task(f"downloading {name}", total=length or None)
        while chunk := read(CHUNK):
            write(chunk)
            checksum.update(chunk)
            size += len(chunk)
            progress.update(bar, completed=size)
    return checksum.hexdigest(), size


def _reason(error: Exception) -> str:
    text = str(getattr(error, "reason", None) or error) or type(error).__name__
    code = getattr(error, "code", None)
    return f"HTTP {code}: {text}" if code else text
