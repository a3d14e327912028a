"""Locating the files of a data set: in a folder that the user names, or in the user's cache, into
which they are downloaded on first use.

Search order: `data.root`, then the variable FEDPRIV_DATA, then `$XDG_CACHE_HOME/fedpriv` or
`~/.cache/fedpriv`. Only the cache is written to; a folder that the user names is only read.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path
from typing import BinaryIO

from fedpriv.errors import DataError, FedprivWarning, require

TIMEOUT = 30
"""A download fails after this number of seconds without a byte."""

_collected: ContextVar[list[Path] | None] = ContextVar("files_read", default=None)


OFFICIAL_RECORDS = {
    "adult.data": 32_561,
    "adult.test": 16_281,
    "brca.csv": 1_096,
    "creditcard.csv": 284_807,
    "data_batch_1": 10_000,
    "data_batch_2": 10_000,
    "data_batch_3": 10_000,
    "data_batch_4": 10_000,
    "data_batch_5": 10_000,
    "input.txt": 1_115_394,
    "processed.cleveland.data": 303,
    "processed.hungarian.data": 294,
    "processed.switzerland.data": 123,
    "processed.va.data": 200,
    "t10k-images-idx3-ubyte": 10_000,
    "test_batch": 10_000,
    "train-images-idx3-ubyte": 60_000,
    "train_test_split.csv": 1_088,
}
"""Number of records in each official file by its name; for a text, of characters."""


@dataclass(frozen=True)
class RemoteFile:
    """One file of a data set.

    places: accepted paths below the data folder. The first that exists is read; a download goes to
        the last one.
    urls: addresses of the file, in the order in which they are tried.
    digest: "sha256:<hex>" or "md5:<hex>" of the download, None if there is no lasting checksum.
    """

    places: tuple[str, ...]
    urls: tuple[str, ...]
    digest: str | None = None


def locate(file: RemoteFile, root: str | None) -> Path:
    """Path of `file`, which is downloaded into the cache if the user names no folder. Raises
    ConfigError or DataError."""
    chosen, folder = chosen_folder(root)
    for place in file.places:
        if (folder / place).is_file():
            return noted(folder / place)
    if chosen:
        raise DataError(
            f"data.root={chosen}: no {' or '.join(file.places)} in this folder; put it there "
            f"(from {file.urls[0]}), or unset data.root and FEDPRIV_DATA to download it"
        )
    return noted(download(file, folder))


@contextmanager
def files_read() -> Iterator[list[Path]]:
    """Context that collects the paths of `noted`."""
    paths: list[Path] = []
    token = _collected.set(paths)
    try:
        yield paths
    finally:
        _collected.reset(token)


def noted(path: Path) -> Path:
    """The path of a data file that is about to be read; a run's digest of its data covers it."""
    paths = _collected.get()
    if paths is not None:
        paths.append(path)
    return path


def warn_if_partial(path: Path, found: int) -> None:
    """Warn when a file does not have as many records as the official one: a part of it is allowed,
    but a file that was cut looks like a part."""
    official = OFFICIAL_RECORDS[path.name.removesuffix(".gz")]
    if found != official:
        text = f"{path}: {found:,} records or characters; the official file has {official:,}"
        warnings.warn(text, FedprivWarning, stacklevel=2)


def chosen_folder(root: str | None) -> tuple[str | None, Path]:
    """The folder that the user names, as a string (None if there is none), and the folder to read:
    that one, or the cache. Raises ConfigError."""
    chosen = root or os.environ.get("FEDPRIV_DATA")
    folder = Path(chosen).expanduser() if chosen else cache_dir()
    if chosen:
        require(
            folder.is_dir(), "data.root", chosen, "an existing folder (FEDPRIV_DATA sets it too)"
        )
    return chosen, folder


def cache_dir() -> Path:
    """The folder of downloaded data sets."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "fedpriv"


def download(file: RemoteFile, folder: Path) -> Path:
    """Fetch `file` into `folder`. It arrives complete and checked, or not at all. Raises DataError
    if no address serves it."""
    target = folder / file.places[-1]
    failures = []
    for url in file.urls:
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            _fetch(url, target, file.digest)
            return target
        except (OSError, HTTPException) as error:  # URLError and timeouts are OSErrors
            failures.append(f"{url} ({str(error) or type(error).__name__})")
    raise DataError(
        f"{target.name}: cannot download from {' nor from '.join(failures)}; "
        f"download it by hand to {target}, or to {file.places[-1]} below a folder named by "
        "data.root"
    )


def _fetch(url: str, target: Path, digest: str | None) -> None:
    """Write `url` to a temporary file beside `target`, check it, and move it into place."""
    handle, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.", suffix=".tmp")
    try:
        with os.fdopen(handle, "w+b") as file:
            size, announced = _copy(url, file, target.name)
            file.seek(0)
            algorithm, _, expected = (digest or "sha256:").partition(":")
            found = hashlib.file_digest(file, algorithm).hexdigest()
        if announced and size != announced:
            raise OSError(f"the connection ended after {size} of {announced} bytes")
        if not size:
            raise OSError("the answer is empty")
        if digest and found != expected:
            raise OSError(f"wrong checksum: {algorithm} is {found}, not {expected}")
        os.chmod(name, 0o644)
        os.replace(name, target)
    finally:
        Path(name).unlink(missing_ok=True)


def _copy(url: str, file: BinaryIO, name: str) -> tuple[int, int]:
    """Copy everything at `url` with a progress bar: the number of bytes, and how many the server
    announced (0 if none)."""
    from urllib.request import Request, urlopen

    from rich.progress import wrap_file

    from fedpriv.util.consoles import HarmlessConsole

    console = HarmlessConsole(stderr=True)
    with urlopen(Request(url, headers={"User-Agent": "fedpriv"}), timeout=TIMEOUT) as body:
        announced = int(body.headers.get("Content-Length") or 0)
        with wrap_file(
            body,
            announced,
            description=f"downloading {name}",
            console=console,
            transient=True,
            disable=not console.is_terminal,
        ) as shown:
            shutil.copyfileobj(shown, file)
    return file.tell(), announced
