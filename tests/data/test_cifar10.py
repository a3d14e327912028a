import io
import pickle
import tarfile
from pathlib import Path

import numpy as np
import pytest
from small_data import cifar10

from fedpriv.data.cifar10 import BATCHES, FILE, FOLDER, MAX_BYTES, Cifar10, read
from fedpriv.errors import ConfigError, DataError
from fedpriv.util.streams import Streams


def official(arrays):
    """The bytes of the official files with these images, by name. Python 2 wrote them, whose
    strings are bytes."""
    files = {}
    rows = np.array_split(np.arange(len(arrays["y_train"])), 5)
    parts = [(arrays["x_train"][part], arrays["y_train"][part]) for part in rows]
    for name, (x, y) in zip(BATCHES, [*parts, (arrays["x_test"], arrays["y_test"])]):
        flat = x.transpose(0, 3, 1, 2).reshape(len(x), -1)
        raw = pickle.dumps({"data": flat, "labels": y.tolist()}, protocol=2)
        for key in (b"data", b"labels"):
            raw = raw.replace(
                b"X" + len(key).to_bytes(4, "little") + key, b"U" + bytes([len(key)]) + key
            )
        files[name] = raw
    return files


def write_folder(root):
    folder = root / FOLDER
    folder.mkdir()
    for name, raw in official(cifar10()).items():
        (folder / name).write_bytes(raw)
    return folder


def write_archive(root):
    with tarfile.open(root / "cifar-10-python.tar.gz", "w:gz") as archive:
        for name, raw in official(cifar10()).items():
            info = tarfile.TarInfo(f"{FOLDER}/{name}")
            info.size = len(raw)
            archive.addfile(info, io.BytesIO(raw))


@pytest.mark.parametrize("write", [write_folder, write_archive])
def test_the_official_files_and_the_subset_hold_the_same(tmp_path, small_root, write):
    write(tmp_path)
    ours, subset = read(str(tmp_path)), read(small_root)
    for part, other in ((ours.train, subset.train), (ours.test, subset.test)):
        np.testing.assert_array_equal(part[0], other[0])
        np.testing.assert_array_equal(part[1], other[1])


def test_reads_what_torchvision_reads(tmp_path, monkeypatch):
    from torchvision.datasets import CIFAR10

    folder = write_folder(tmp_path)
    (folder / "batches.meta").write_bytes(pickle.dumps({"label_names": list("abcdefghij")}))
    monkeypatch.setattr("torchvision.datasets.cifar.check_integrity", lambda path, md5=None: True)
    ours = read(str(tmp_path))
    for train, (images, labels) in ((True, ours.train), (False, ours.test)):
        theirs = CIFAR10(str(tmp_path), train=train)
        np.testing.assert_array_equal(images, theirs.data)
        np.testing.assert_array_equal(labels, theirs.targets)


def test_address_and_checksum_are_torchvisions():
    from torchvision.datasets import CIFAR10

    assert FILE.digest == f"md5:{CIFAR10.tgz_md5}"
    assert FILE.urls == (CIFAR10.url,)
    assert FILE.places[-1] == CIFAR10.filename
    assert CIFAR10.base_folder == FOLDER
    assert tuple(name for name, _ in [*CIFAR10.train_list, *CIFAR10.test_list]) == BATCHES


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
        (npz(y_train=np.zeros(100, dtype=int)), r"its labels are \[0\], not 0 to 9"),
        (npz(y_test=np.arange(40) % 11), "its labels are"),
        (npz(y_train=np.arange(99) % 10), "uint8 images of shape .* for 99 labels"),
        (npz(x_train=np.zeros((100, 28, 28, 3), np.uint8)), "images of shape"),
        (npz(x_train=np.zeros((100, 32, 32, 3))), "float64 images"),
        (npz(x_train=np.array([{}])), "not CIFAR-10's images"),
    ],
)
def test_a_bad_subset_is_one_line(tmp_path, content, message):
    (tmp_path / "cifar10").mkdir()
    (tmp_path / "cifar10/cifar10_subset.npz").write_bytes(content)
    with pytest.raises(DataError, match=message) as caught:
        read(str(tmp_path))
    assert "cifar10_subset.npz: " in str(caught.value)
    assert "\n" not in str(caught.value)


class Harmful:
    def __reduce__(self):
        return print, ("called",)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (pickle.dumps(Harmful()), "which is no array"),
        (pickle.dumps({b"data": np.zeros(5, np.uint8), b"labels": [1]}), "not CIFAR-10's images"),
        (pickle.dumps([1, 2]), "not CIFAR-10's images"),
        (b"\x80", "not CIFAR-10's images"),
    ],
)
def test_a_bad_official_file_is_one_line_and_calls_nothing(tmp_path, capsys, content, message):
    (write_folder(tmp_path) / BATCHES[2]).write_bytes(content)
    with pytest.raises(DataError, match=message) as caught:
        read(str(tmp_path))
    assert "\n" not in str(caught.value)
    assert capsys.readouterr().out == ""


def test_a_file_that_lacks_its_neighbours_is_one_line(tmp_path):
    (write_folder(tmp_path) / BATCHES[-1]).unlink()
    with pytest.raises(DataError, match="test_batch"):
        read(str(tmp_path))


def test_another_split_is_refused():
    with pytest.raises(ConfigError, match=r"data.split=half: paper or script"):
        Cifar10(split="half")


def test_real_sizes(real_root):
    """The first 10,000 and 1,000 of the official images: a fifth of each class, or four fifths of
    all."""
    if not (Path(real_root) / "cifar10/cifar10_subset.npz").is_file():
        pytest.skip("no subset of CIFAR-10 there")
    paper, script = (Cifar10(real_root, split).load(Streams(0)) for split in ("paper", "script"))
    assert (len(paper.train), len(paper.test)) == (8800, 2200)
    assert (len(script.train), len(script.test)) == (2000, 1000)
    assert abs(paper.train.x.mean()) < 0.05
    assert paper.train.x.std() == pytest.approx(1, abs=0.02)


def test_an_array_of_pointers_is_one_line(tmp_path):
    """The bytes of such an array would be followed as addresses."""
    folder = write_folder(tmp_path)
    raw = (folder / BATCHES[0]).read_bytes()
    (folder / BATCHES[0]).write_bytes(raw.replace(b"u1", b"O8"))
    with pytest.raises(DataError, match="of type 'O8', not of integers"):
        read(str(tmp_path))


def test_archives_that_unpack_to_much_are_one_line(tmp_path):
    write_archive(tmp_path)
    with tarfile.open(tmp_path / "cifar-10-python.tar.gz", "w:gz") as archive:
        for name in BATCHES:
            info = tarfile.TarInfo(f"{FOLDER}/{name}")
            info.size = MAX_BYTES + 1
            archive.addfile(info, io.BytesIO(bytes(info.size)))
    with pytest.raises(DataError, match=f"no file of at most {MAX_BYTES} bytes"):
        read(str(tmp_path))
