import gzip
import io
import os
import pickle
import resource
import tarfile

import numpy as np
import pytest
from refusals import refused
from small_data import cifar10

from fedpriv.data.cifar10 import BATCHES, BINARY, MAX_BYTES, PYTHON, Cifar10, read
from fedpriv.errors import ConfigError, DataError
from fedpriv.util.streams import Streams


def official(arrays, version=BINARY):
    """The bytes of the official files with these images, by name."""
    rows = np.array_split(np.arange(len(arrays["y_train"])), 5)
    parts = [(arrays["x_train"][part], arrays["y_train"][part]) for part in rows]
    files = {}
    for name, (x, y) in zip(BATCHES, [*parts, (arrays["x_test"], arrays["y_test"])]):
        flat = x.transpose(0, 3, 1, 2).reshape(len(x), -1)
        if version is BINARY:
            raw = np.column_stack([y.astype(np.uint8), flat]).tobytes()
        else:
            raw = pickle.dumps({b"data": flat, b"labels": y.tolist()}, 2)
        files[name + version.ending] = raw
    return files


def write_folder(root, version=BINARY):
    folder = root / version.folder
    folder.mkdir()
    for name, raw in official(cifar10(), version).items():
        (folder / name).write_bytes(raw)
    return folder


def write_archive(root, version=BINARY, files=None):
    with tarfile.open(root / version.archive, "w:gz") as archive:
        for name, raw in (files or official(cifar10(), version)).items():
            info = tarfile.TarInfo(f"{version.folder}/{name}")
            info.size = len(raw)
            archive.addfile(info, io.BytesIO(raw))


@pytest.mark.parametrize("version", [BINARY, PYTHON])
@pytest.mark.parametrize("write", [write_folder, write_archive])
def test_the_official_files_and_the_subset_hold_the_same(tmp_path, small_root, write, version):
    write(tmp_path, version)
    for part, other in zip(read(str(tmp_path)), read(small_root), strict=True):
        np.testing.assert_array_equal(part[0], other[0])
        np.testing.assert_array_equal(part[1], other[1])


class Runs:
    """Would write a file if it were unpickled."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (str(self.path),)


@pytest.mark.parametrize("place", ["data", "labels", "other"])
def test_a_pickle_of_anything_else_runs_no_code(tmp_path, place):
    folder = write_folder(tmp_path, PYTHON)
    content = {b"data": np.zeros((2, 3072), np.uint8), b"labels": [0, 1]}
    content[place.encode()] = Runs(tmp_path / "made")
    (folder / "data_batch_3").write_bytes(pickle.dumps(content, 2))
    refused(lambda: read(str(tmp_path)), "not CIFAR-10's images: a pickle of", error=DataError)
    assert not (tmp_path / "made").exists()


PIXELS = np.zeros((2, 3072), np.uint8)
NAMES = b"\x80\x02cnumpy\nndarray\n"
"""A pickle's beginning: protocol 2, and the name of a class."""
LAUGHS = [0, 1]
for _ in range(9):
    LAUGHS = [LAUGHS] * 10
MALICIOUS = {
    # the pickle: a part of the error
    "a huge shape": (NAMES + b"(J\xff\xff\xff\x7fK\x7ftR.", "not subscriptable"),
    "a place far away": (b"\x80\x02N" + b"r\xff\xff\xff\xff.", "remembers a value at 4294967295"),
    "lists of one list": (
        pickle.dumps({b"data": PIXELS, b"labels": LAUGHS}, 2),
        "no list of whole numbers",
    ),
    "an array of objects": (
        pickle.dumps({b"data": np.array([[1], "x"], object), b"labels": [0, 1]}, 2),
        "a pickled array of O8",
    ),
    "an array of structures": (
        pickle.dumps({b"data": np.zeros(2, "u1,u1"), b"labels": [0, 1]}, 2),
        "a pickled array of V2",
    ),
    "a shape of more bytes": (
        pickle.dumps({b"data": PIXELS, b"labels": [0, 1]}, 2).replace(b"M\x00\x0c", b"M\x00\xff"),
        "cannot reshape",
    ),
    "a length of terabytes": (b"\x80\x04\x8e" + bytes(5) + b"\x0f\x00\x00.", "bytes8"),
}


@pytest.mark.parametrize("case", MALICIOUS)
def test_a_pickle_takes_no_memory_that_it_does_not_have(tmp_path, case):
    raw, part = MALICIOUS[case]
    (write_folder(tmp_path, PYTHON) / "data_batch_3").write_bytes(raw)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    refused(lambda: read(str(tmp_path)), "not CIFAR-10's images", part, error=DataError)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 2**17  # KiB


def test_an_archive_is_unpacked_within_its_limit(tmp_path):
    """Its headers too, which the library reads as they say how long they are."""
    with gzip.open(tmp_path / BINARY.archive, "wb", compresslevel=1) as file:
        for _ in range(7):
            file.write(bytes(MAX_BYTES))
    refused(lambda: read(str(tmp_path)), "it unpacks to more than", error=DataError)


@pytest.mark.parametrize(("split", "train", "test"), [("paper", 112, 28), ("script", 20, 40)])
def test_every_silo_holds_one_class(small_root, split, train, test):
    corpus = Cifar10(small_root, split).load(Streams(0))
    assert (len(corpus.train), len(corpus.test)) == (train, test)
    np.testing.assert_array_equal(corpus.train.silo, corpus.train.y)
    assert corpus.train.x.shape == (train, 3, 32, 32)
    brightness = [corpus.train.x[corpus.train.y == label].mean() for label in range(10)]
    assert np.all(np.diff(brightness) > 0)


def test_pixels_are_normalised_colour_by_colour(tmp_path):
    arrays = cifar10()
    arrays["x_train"][:] = (0, 51, 255)
    arrays["x_test"][:] = (0, 51, 255)
    (tmp_path / "cifar10").mkdir()
    np.savez(tmp_path / "cifar10/cifar10_subset.npz", **arrays)
    x = Cifar10(str(tmp_path)).load(Streams(0)).train.x
    expected = (-0.4914 / 0.2470, (0.2 - 0.4822) / 0.2435, (1 - 0.4465) / 0.2616)
    np.testing.assert_allclose(x[0, :, 0, 0], expected, rtol=1e-5)
    np.testing.assert_allclose(x.std(axis=(0, 2, 3)), 0, atol=1e-5)


def npz(**changes):
    out = io.BytesIO()
    np.savez(out, **(cifar10() | changes))
    return out.getvalue()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "not CIFAR-10's images"),
        (b"<html>", "not CIFAR-10's images"),
        (npz()[:-100], "not CIFAR-10's images"),
        (npz(y_train=np.zeros(100, dtype=int)), "with labels from 0 to 9"),
        (npz(y_test=np.arange(40) % 11), "with labels from 0 to 9"),
        (npz(y_train=np.arange(99) % 10), "labels of shape (99,), not 32x32 colours"),
        (npz(x_train=np.zeros((100, 28, 28, 3), np.uint8)), "images of shape"),
        (npz(x_train=np.zeros((100, 32, 32, 3))), "float64 images"),
        (npz(x_train=np.array([{}])), "not CIFAR-10's images"),
    ],
)
def test_a_bad_subset_is_one_line(tmp_path, content, message):
    (tmp_path / "cifar10").mkdir()
    (tmp_path / "cifar10/cifar10_subset.npz").write_bytes(content)
    refused(lambda: read(str(tmp_path)), "cifar10_subset.npz: ", message)


def test_a_file_that_is_cut_or_lacks_its_neighbours_is_one_line(tmp_path):
    folder = write_folder(tmp_path)
    (folder / f"{BATCHES[2]}.bin").write_bytes(b"x" * 5000)
    with pytest.raises(DataError, match="not CIFAR-10's images: cannot reshape"):
        read(str(tmp_path))
    (folder / f"{BATCHES[-1]}.bin").unlink()
    with pytest.raises(DataError, match="not CIFAR-10's images"):
        read(str(tmp_path))


def test_another_split_is_refused():
    with pytest.raises(ConfigError, match=r"data.split=half: paper or script"):
        Cifar10(split="half")


def test_archives_that_unpack_to_much_are_one_line(tmp_path):
    files = {f"{BATCHES[0]}.bin": bytes(MAX_BYTES + 1)}
    write_archive(tmp_path, files=files)
    with pytest.raises(DataError, match=f"no file of at most {MAX_BYTES} bytes"):
        read(str(tmp_path))
