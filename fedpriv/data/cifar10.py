"""CIFAR-10: 60,000 colour images of 32x32 pixels in ten classes; every class is a silo."""

from __future__ import annotations

import lzma
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fedpriv.data.base import Corpus, DataSet, Records
from fedpriv.data.dealing import deal_equally
from fedpriv.data.files import RemoteFile, locate, warn_if_partial
from fedpriv.data.pickled_numbers import read_pickled_numbers
from fedpriv.data.split import split_rows
from fedpriv.errors import DataError, require
from fedpriv.models.tasks import Classification
from fedpriv.util.streams import Streams
from fedpriv.util.untrusted_files import read_bytes

CLASSES = 10
SIDE = 32
FOLDER = "cifar-10-batches-py"
BATCHES = (*(f"data_batch_{number}" for number in range(1, 6)), "test_batch")
SUBSET = "cifar10/cifar10_subset.npz"
MAX_BYTES = 2**25
"""Size limit of each of the official files, which have 31 million bytes."""

FILE = RemoteFile(
    places=(
        f"{FOLDER}/{BATCHES[0]}",
        f"cifar10/{FOLDER}/{BATCHES[0]}",
        SUBSET,
        "cifar-10-python.tar.gz",
    ),
    urls=("https://www.cs.toronto.edu/~kriz/cifar-10-python.tar.gz",),
    digest="md5:c58f30108f718f92721af3b95e74349a",
)

MEAN, STD = (0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)
"""Mean and deviation of the training pixels by colour, on the scale 0..1."""


@dataclass(frozen=True)
class Images:
    """The official parts, each with images (n, 32, 32, 3) and labels (n,), uint8.

    train: training part.
    test: test part.
    """

    train: tuple[np.ndarray, np.ndarray]
    test: tuple[np.ndarray, np.ndarray]


def _batch(path: Path, raw: bytes) -> tuple[np.ndarray, np.ndarray]:
    """One of the official files: rows of 3,072 bytes, colour by colour."""
    content = read_pickled_numbers(raw)
    pixels = content["data"]
    labels = content["labels"]
    if not isinstance(pixels, np.ndarray) or pixels.ndim != 2 or pixels.shape[1] != 3 * SIDE**2:
        raise ValueError("its data are no rows of 3,072 bytes")
    if not isinstance(labels, list) or any(type(label) is not int for label in labels):
        raise ValueError("its labels are no list of whole numbers")
    warn_if_partial(path, len(labels))
    return pixels.reshape(-1, 3, SIDE, SIDE).transpose(0, 2, 3, 1), np.array(labels, np.int64)


def _parts(read: Callable[[str], bytes]) -> Images:
    batches = [_batch(Path(name), read(name)) for name in BATCHES]
    images, labels = (np.concatenate(arrays) for arrays in zip(*batches[:-1]))
    return Images((images, labels), batches[-1])


def _from_folder(path: Path) -> Images:
    return _parts(lambda name: read_bytes(path.parent / name, MAX_BYTES))


def _from_archive(path: Path) -> Images:
    with tarfile.open(path) as archive:

        def read(name: str) -> bytes:
            member = archive.getmember(f"{FOLDER}/{name}")
            if not member.isreg() or member.size > MAX_BYTES:
                raise ValueError(f"{name} is no file of at most {MAX_BYTES} bytes")
            file = archive.extractfile(member)
            assert file is not None, f"{name} is no file"
            return file.read()

        return _parts(read)


def _from_subset(path: Path) -> Images:
    with zipfile.ZipFile(path) as archive:
        if sum(entry.file_size for entry in archive.infolist()) > 6 * MAX_BYTES:
            raise ValueError(f"its arrays have more than {6 * MAX_BYTES} bytes")
    with np.load(path, allow_pickle=False) as arrays:
        return Images((arrays["x_train"], arrays["y_train"]), (arrays["x_test"], arrays["y_test"]))


READERS = {".npz": _from_subset, ".gz": _from_archive, "": _from_folder}
"""Readers by the suffix of the file."""

DAMAGE: tuple[type[Exception], ...] = (OSError, EOFError, LookupError, ValueError, TypeError)
DAMAGE += (AttributeError, AssertionError, MemoryError, zlib.error)
DAMAGE += (ArithmeticError, RuntimeError, NotImplementedError, struct.error, lzma.LZMAError)
DAMAGE += (tarfile.TarError, zipfile.BadZipFile)
"""Exceptions that readers raise for damaged files."""


def read(root: str | None) -> Images:
    """The images below `root` (see `DataSet`), checked. Raises DataError."""
    path = locate(FILE, root)
    try:
        images = READERS[path.suffix](path)
        for pixels, labels in (images.train, images.test):
            if pixels.shape != (len(labels), SIDE, SIDE, 3) or pixels.dtype != np.uint8:
                raise ValueError(
                    f"{pixels.dtype} images of shape {pixels.shape} for {len(labels)} labels"
                )
            if labels.ndim != 1 or labels.dtype.kind not in "iu":
                raise ValueError(f"its labels are {labels.dtype} of shape {labels.shape}")
            if set(np.unique(labels).tolist()) != set(range(CLASSES)):
                raise ValueError(f"its labels are {np.unique(labels).tolist()[:20]}, not 0 to 9")
    except DAMAGE as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        raise DataError(f"{path}: not CIFAR-10's images: {reason:.200}") from error
    return images


def source(root: str | None) -> str:
    """Name of the data below `root`, for titles."""
    path = locate(FILE, root)
    return f"a subset of CIFAR-10 ({path.name})" if path.suffix == ".npz" else "CIFAR-10"


def _all_pooled(images: Images, streams: Streams) -> tuple[Records, Records]:
    """As in the paper: 80 % of all images of every class for training, 20 % for tests."""
    x, y = (np.concatenate(arrays) for arrays in zip(images.train, images.test))
    train, test = split_rows(y, streams)
    return _records(x[train], y[train]), _records(x[test], y[test])


def _fifth_of_training(images: Images, streams: Streams) -> tuple[Records, Records]:
    """As in the paper's program: 20 % of every class of the training part for training, and the
    official test part for tests."""
    x, y = images.train
    _, kept = split_rows(y, streams)
    return _records(x[kept], y[kept]), _records(*images.test)


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

    Lowy, Ghafelebashi, Razaviyayn (AISTATS 2023), Appendix H.3. Reads cifar-10-batches-py/ or
    cifar-10-python.tar.gz below `root`, the layout of torchvision, or a subset: the arrays x_train,
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
        n = len(images.train[1])
        allowed = f"at most {n}, the number of training images"
        require(self.clients <= n, "data.clients", self.clients, allowed)
        return Corpus(
            *(self._dealt(_records(*part), streams) for part in (images.train, images.test))
        )

    def _dealt(self, records: Records, streams: Streams) -> Records:
        user = deal_equally(
            len(records), self.clients, streams.generator(f"clients of {len(records)} images")
        )
        return Records(records.x, records.y, user=user)
