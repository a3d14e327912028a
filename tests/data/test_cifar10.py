import gzip
import io
import tarfile

import numpy as np
import pytest
from refusals import refused
from small_data import cifar10

from fedpriv.data.cifar10 import ARCHIVE, BATCHES, FOLDER, Cifar10, read
from fedpriv.errors import ConfigError, DataError
from fedpriv.util.streams import Streams


def official(arrays):
    """The bytes of the official files with these images, by name."""
    rows = np.array_split(np.arange(len(arrays["y_train"])), 5)
    parts = [(arrays["x_train"][part], arrays["y_train"][part]) for part in rows]
    files = {}
    for name, (x, y) in zip(BATCHES, [*parts, (arrays["x_test"], arrays["y_test"])]):
        flat = x.transpose(0, 3, 1, 2).reshape(len(x), -1)
        files[f"{name}.bin"] = np.column_stack([y.astype(np.uint8), flat]).tobytes()
    return files


def write_folder(root):
    folder = root / FOLDER
    folder.mkdir()
    for name, raw in official(cifar10()).items():
        (folder / name).write_bytes(raw)
    return folder


def write_archive(root, files=None):
    with tarfile.open(root / ARCHIVE, "w:gz") as archive:
        for name, raw in (files or official(cifar10())).items():
            info = tarfile.TarInfo(f"{FOLDER}/{name}")
            info.size = len(raw)
            archive.addfile(info, io.BytesIO(raw))


@pytest.mark.parametrize("write", [write_folder, write_archive])
def test_the_official_files_and_the_subset_hold_the_same(tmp_path, small_root, write):
    write(tmp_path)
    for part, other in zip(read(str(tmp_path)), read(small_root), strict=True):
        np.testing.assert_array_equal(part[0], other[0])
        np.testing.assert_array_equal(part[1], other[1])


def test_an_archive_is_unpacked_within_its_limit(tmp_path, monkeypatch):
    """Its headers too, which the library reads as they say how long they are."""
    monkeypatch.setattr("fedpriv.data.cifar10.ALL_BYTES", 2**20)
    with gzip.open(tmp_path / ARCHIVE, "wb", compresslevel=1) as file:
        file.write(bytes(2**20 + 10_000))
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


def test_archives_that_unpack_to_much_are_one_line(tmp_path, monkeypatch):
    monkeypatch.setattr("fedpriv.data.cifar10.MAX_BYTES", 2**16)
    files = {f"{BATCHES[0]}.bin": bytes(2**16 + 1)}
    write_archive(tmp_path, files=files)
    with pytest.raises(DataError, match=f"no file of at most {2**16} bytes"):
        read(str(tmp_path))
