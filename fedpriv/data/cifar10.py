"""CIFAR-10: 60,000 colour images of 32x32 pixels in ten classes; every class is a silo."""

from __future__ import annotations

import gzip
import io
import tarfile
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fedpriv.data.base import Corpus, DataSet, Records
from fedpriv.data.dealing import deal_equally
from fedpriv.data.files import RemoteFile, locate, warn_if_partial
from fedpriv.data.split import split_rows
from fedpriv.errors import DataError, require
from fedpriv.models.tasks import Classification
from fedpriv.util.streams import Streams
from fedpriv.util.untrusted_files import opened, read_bytes

CLASSES = 10
SIDE = 32
PIXELS = 3 * SIDE**2
BATCHES = (*(f"data_batch_{number}" for number in range(1, 6)), "test_batch")
SUBSET = "cifar10/cifar10_subset.npz"
MAX_BYTES = 2**25
"""Size limit of each of the official files, which have 31 million bytes."""
ALL_BYTES = 6 * MAX_BYTES
"""Size limit of all of them together, packed and unpacked."""

MEAN, STD = (0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)
"""Mean and deviation of the training pixels by colour, on the scale 0..1."""


Part = tuple[np.ndarray, np.ndarray]
"""Images (n, 32, 32, 3) uint8 and labels (n,) of the official training or test part."""


FOLDER, ARCHIVE = "cifar-10-batches-bin", "cifar-10-binary.tar.gz"
"""The official binary version: its folder and its archive."""
FILE = RemoteFile(
    places=(
        *(f"{above}{FOLDER}/{BATCHES[0]}.bin" for above in ("", "cifar10/")),
        SUBSET,
        ARCHIVE,
    ),
    urls=(f"https://www.cs.toronto.edu/~kriz/{ARCHIVE}",),
    digest="md5:c32a1d4ab5d03f1284b67883e8d87530",
)


def _parts(read: Callable[[str], bytes]) -> tuple[Part, Part]:
    """The parts, from the content of each official file."""
    batches = []
    for name in BATCHES:
        rows = np.frombuffer(read(f"{name}.bin"), np.uint8).reshape(-1, 1 + PIXELS)
        warn_if_partial(Path(name), len(rows))
        images = rows[:, 1:].reshape(-1, 3, SIDE, SIDE).transpose(0, 2, 3, 1)
        batches.append((images, rows[:, 0].astype(np.int64)))
    images, labels = (np.concatenate(arrays) for arrays in zip(*batches[:-1]))
    return (images, labels), batches[-1]


def _official(path: Path) -> tuple[Part, Part]:
    """The parts in a folder with `path`, or in the archive `path`."""
    if path.name != ARCHIVE:
        return _parts(lambda name: read_bytes(path.parent / name, MAX_BYTES))
    with opened(path, ALL_BYTES) as file, gzip.open(file) as unpacked:
        content = unpacked.read(ALL_BYTES + 1)
    if len(content) > ALL_BYTES:
        raise ValueError(f"it unpacks to more than {ALL_BYTES} bytes")
    with tarfile.open(None, "r:", io.BytesIO(content)) as archive:

        def read(name: str) -> bytes:
            member = archive.getmember(f"{FOLDER}/{name}")
            part = archive.extractfile(member)
            if part is None or member.size > MAX_BYTES:
                raise ValueError(f"{name} is no file of at most {MAX_BYTES} bytes")
            return part.read()

        return _parts(read)


def _from_subset(path: Path) -> tuple[Part, Part]:
    with opened(path, ALL_BYTES) as file:
        sizes = [entry.file_size for entry in zipfile.ZipFile(file).infolist()]
        if sum(sizes) > ALL_BYTES:
            raise ValueError(f"its arrays have more than {ALL_BYTES} bytes")
        file.seek(0)
        with np.load(file, allow_pickle=False) as arrays:
            return (arrays["x_train"], arrays["y_train"]), (arrays["x_test"], arrays["y_test"])


def read(root: str | None) -> tuple[Part, Part]:
    """The training and test images below `root` (see `DataSet`), checked. Raises DataError."""
    path = locate(FILE, root)
    try:
        parts = _from_subset(path) if path.suffix == ".npz" else _official(path)
        for pixels, labels in parts:
            fits = pixels.shape == (len(labels), SIDE, SIDE, 3) and pixels.dtype == np.uint8
            classes = labels.ndim == 1 and labels.dtype.kind in "iu" and set(labels.tolist())
            if not fits or classes != set(range(CLASSES)):
                raise ValueError(
                    f"{pixels.dtype} images of shape {pixels.shape} with {labels.dtype} labels of "
                    f"shape {labels.shape}, not 32x32 colours with labels from 0 to 9"
                )
    except Exception as error:  # of zipfile, tarfile, zlib and numpy, which have no common base
        reason = " ".join(str(error).split()) or type(error).__name__
        raise DataError(f"{path}: not CIFAR-10's images: {reason:.200}") from error
    return parts


def _all_pooled(images: tuple[Part, Part], streams: Streams) -> tuple[Records, Records]:
    """As in the paper: 80 % of all images of every class for training, 20 % for tests."""
    x, y = (np.concatenate(arrays) for arrays in zip(*images))
    train, test = split_rows(y, streams)
    return _records(x[train], y[train]), _records(x[test], y[test])


def _fifth_of_training(images: tuple[Part, Part], streams: Streams) -> tuple[Records, Records]:
    """As in the paper's program: 20 % of every class of the training part for training, and the
    official test part for tests."""
    (x, y), test = images
    _, kept = split_rows(y, streams)
    return _records(x[kept], y[kept]), _records(*test)


def _records(images: np.ndarray, labels: np.ndarray) -> Records:
    levels = ((np.arange(256)[:, None] / 255 - MEAN) / STD).astype(np.float32)
    x = np.stack([levels[images[..., colour], colour] for colour in range(3)], axis=1)
    y = labels.astype(np.int64)
    return Records(x, y, silo=y)


SPLITS = {"paper": _all_pooled, "script": _fifth_of_training}


@dataclass(frozen=True)
class Cifar10(DataSet):
    """Images of ten classes of animals and vehicles (Krizhevsky 2009), normalised per colour; silo
    k holds class k.

    Lowy, Ghafelebashi, Razaviyayn (AISTATS 2023), Appendix H.3. Reads the official binary version
    below `root` (a folder cifar-10-batches-bin, or its archive), or a subset: the arrays x_train,
    y_train, x_test and y_test of cifar10/cifar10_subset.npz.

    split: `paper` (80/20 of every class, 4,800 training records per silo of the full set) or
        `script` (a fifth of the official training part, 1,000 per silo, and the official tests).
    """

    split: str = "paper"

    shape = (3, SIDE, SIDE)
    outputs = CLASSES
    task = Classification()
    natural_silos = CLASSES

    def __post_init__(self) -> None:
        require(self.split in SPLITS, "data.split", self.split, " or ".join(SPLITS))

    def load(self, streams: Streams) -> Corpus:
        train, test = SPLITS[self.split](read(self.root), streams)
        return Corpus(train, Records(test.x, test.y))


@dataclass(frozen=True)
class Cifar10Clients(DataSet):
    """The official training and test part, each assigned at random and evenly to users.

    Jeon et al. (SecureD-FL, 2021), Table I: 1,000 users, 50,000 and 10,000 records. Reads the same
    files as `Cifar10`.

    clients: number of users, which are invented.
    """

    clients: int = 1000

    shape = (3, SIDE, SIDE)
    outputs = CLASSES
    task = Classification()
    natural_users = True

    def __post_init__(self) -> None:
        require(self.clients >= 1, "data.clients", self.clients, "a positive number of users")

    def load(self, streams: Streams) -> Corpus:
        images = read(self.root)
        n = len(images[0][1])
        allowed = f"at most {n}, the number of training images"
        require(self.clients <= n, "data.clients", self.clients, allowed)
        return Corpus(*(self._dealt(_records(*part), streams) for part in images))

    def _dealt(self, records: Records, streams: Streams) -> Records:
        user = deal_equally(
            len(records), self.clients, streams.generator(f"clients of {len(records)} images")
        )
        return Records(records.x, records.y, user=user)
