"""MNIST: 70,000 handwritten digits of 28x28 pixels, read from the official idx files."""

from __future__ import annotations

import gzip
import io
import zlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fedpriv.data.base import Corpus, DataSet, Records
from fedpriv.data.files import RemoteFile, locate, warn_if_partial
from fedpriv.data.split import stratified
from fedpriv.errors import DataError, require
from fedpriv.models.tasks import Classification
from fedpriv.util.streams import Streams
from fedpriv.util.untrusted_files import read_bytes

MIRRORS = ("https://ossci-datasets.s3.amazonaws.com/mnist/", "http://yann.lecun.com/exdb/mnist/")

MD5 = {
    "train-images-idx3-ubyte": "f68b3c2dcbeaaa9fbdd348bbdeb94873",
    "train-labels-idx1-ubyte": "d53e105ee54ea40749a09fcbcd1e9432",
    "t10k-images-idx3-ubyte": "9fb629c4189551a2d022fa330f9573f3",
    "t10k-labels-idx1-ubyte": "ec29112dd5afa0611ce80d1b7f02629c",
}
"""Published checksums of the compressed files (torchvision.datasets.MNIST.resources)."""

FILES = {
    name: RemoteFile(
        places=(f"MNIST/raw/{name}", f"MNIST/raw/{name}.gz"),
        urls=tuple(f"{mirror}{name}.gz" for mirror in MIRRORS),
        digest=f"md5:{md5}",
    )
    for name, md5 in MD5.items()
}

MAX_BYTES = 2**26
"""Size limit of a file; the largest has 47 million bytes."""

MEAN, STD = 0.1307, 0.3081
"""Mean and deviation of the training pixels, on the scale 0..1."""


def read_idx(path: Path, axes: int) -> np.ndarray:
    """The array in an idx file of unsigned bytes with `axes` axes, compressed or not.

    Format (LeCun, Cortes, Burges): four bytes 0, 0, 8 (unsigned byte), number of axes; then the
    length of each axis as a big-endian 32-bit integer; then the bytes. Raises DataError.
    """
    try:
        raw = read_bytes(path, MAX_BYTES)
        if path.suffix == ".gz":
            with gzip.open(io.BytesIO(raw)) as file:
                raw = file.read(MAX_BYTES + 1)
            if len(raw) > MAX_BYTES:
                raise ValueError(f"it unpacks to more than {MAX_BYTES} bytes")
        if raw[:4] != bytes([0, 0, 8, axes]):
            raise ValueError(f"it begins with {raw[:4].hex()}")
        lengths = np.frombuffer(raw, ">u4", axes, offset=4)
        return np.frombuffer(raw, np.uint8, offset=4 + 4 * axes).reshape(lengths.tolist())
    except (OSError, EOFError, ValueError, zlib.error) as error:
        raise DataError(
            f"{path}: not an idx file of unsigned bytes with {axes} axes: {error}"
        ) from error


def read_part(part: str, root: str | None) -> tuple[np.ndarray, np.ndarray]:
    """Images (n, 28, 28) and labels (n,), uint8, of an official part. Raises DataError.

    part: "train" or "t10k" (test).
    root: see `DataSet`.
    """
    image_path = locate(FILES[f"{part}-images-idx3-ubyte"], root)
    label_path = locate(FILES[f"{part}-labels-idx1-ubyte"], root)
    images = read_idx(image_path, axes=3)
    labels = read_idx(label_path, axes=1)
    if images.shape != (len(labels), 28, 28) or not len(labels):
        raise DataError(
            f"{image_path}: images of shape {images.shape} for {len(labels)} labels of 28x28 pixels"
        )
    warn_if_partial(image_path, len(images))
    if labels.max() > 9:
        raise DataError(
            f"{label_path}: label {labels.max()} of record {labels.argmax()} is not a digit"
        )
    return images, labels


def read_all(root: str | None) -> tuple[np.ndarray, np.ndarray, int]:
    """Images and labels of both parts, as `read_part`, and the number of records of the test part,
    which comes last."""
    (x, y), (test_x, test_y) = read_part("train", root), read_part("t10k", root)
    return np.concatenate([x, test_x]), np.concatenate([y, test_y]), len(test_y)


@dataclass(frozen=True)
class Mnist(DataSet):
    """Digits in 28x28 grey values (LeCun et al. 1998), scaled to 0..1 and normalised with mean
    0.1307 and deviation 0.3081.

    Kato et al., Uldp-FL (PVLDB 2024), pool the 60,000 and 10,000 records and split them again,
    stratified, into 60,000 and 10,000. Reads MNIST/raw/*-ubyte (or .gz) below `root`, the layout of
    torchvision.

    images: number of training images kept, drawn at random; None for all. All test images stay.
    """

    images: int | None = None

    shape = (1, 28, 28)
    outputs = 10
    task = Classification()

    def __post_init__(self) -> None:
        allowed = "1 or more, or null"
        require(self.images is None or self.images >= 1, "data.images", self.images, allowed)

    def load(self, streams: Streams) -> Corpus:
        images, labels, tests = read_all(self.root)
        train, test = stratified(labels, tests, streams.generator("train/test split"))
        if self.images is not None:
            allowed = f"at most {len(train)}, the number of training images, or null"
            require(self.images <= len(train), "data.images", self.images, allowed)
            train = np.sort(streams.generator("images").permutation(train)[: self.images])
        return Corpus(_records(images[train], labels[train]), _records(images[test], labels[test]))


def _records(images: np.ndarray, labels: np.ndarray) -> Records:
    return Records(normalised(images), labels.astype(np.int64))


def normalised(images: np.ndarray) -> np.ndarray:
    """Grey values (n, 28, 28) uint8 as normalised images (n, 1, 28, 28) float32."""
    table = ((np.arange(256) / 255 - MEAN) / STD).astype(np.float32)
    return np.asarray(table[images][:, None])
