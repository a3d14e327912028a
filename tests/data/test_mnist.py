import gzip
from pathlib import Path

import numpy as np
import pytest
from refusals import refused
from small_data import idx, write_mnist

from fedpriv.data.mnist import FILES, Mnist, read_idx
from fedpriv.errors import ConfigError, DataError
from fedpriv.util.streams import Streams

IMAGES, LABELS = "train-images-idx3-ubyte", "train-labels-idx1-ubyte"


def test_reads_what_torchvision_reads(small_root):
    from torchvision.datasets import MNIST

    raw = Path(small_root) / "MNIST" / "raw"
    for name in FILES:  # torchvision wants uncompressed files
        if not (raw / name).exists():
            (raw / name).write_bytes(gzip.decompress((raw / f"{name}.gz").read_bytes()))
    corpus = Mnist(small_root).load(Streams(0))
    images = np.concatenate([MNIST(small_root, train=part).data.numpy() for part in (True, False)])
    labels = np.concatenate(
        [MNIST(small_root, train=part).targets.numpy() for part in (True, False)]
    )
    expected = (images / 255 - 0.1307) / 0.3081
    ours = np.concatenate([corpus.train.x, corpus.test.x])[:, 0]
    order, theirs = (np.lexsort(x.reshape(len(x), -1).T) for x in (ours, expected))
    np.testing.assert_allclose(ours[order], expected[theirs], atol=1e-6)
    np.testing.assert_array_equal(
        np.concatenate([corpus.train.y, corpus.test.y])[order], labels[theirs]
    )


def test_a_part_of_the_training_images_beside_the_same_tests(tmp_path):
    write_mnist(tmp_path, train=700, test=100)
    whole, part = (Mnist(str(tmp_path), images=n).load(Streams(0)) for n in (None, 70))
    assert len(part.train) == 70
    np.testing.assert_array_equal(part.test.x, whole.test.x)
    known = {(image.tobytes(), int(y)) for image, y in zip(whole.train.x, whole.train.y)}
    assert {(image.tobytes(), int(y)) for image, y in zip(part.train.x, part.train.y)} <= known


@pytest.mark.parametrize("images", [0, 701])
def test_more_images_than_there_are_are_refused(tmp_path, images):
    write_mnist(tmp_path, train=700, test=100)
    with pytest.raises(ConfigError, match=r"data\.images"):
        Mnist(str(tmp_path), images=images).load(Streams(0))


def truncated_gzip(data):
    return gzip.compress(data, mtime=0)[:-20]


@pytest.mark.parametrize(
    ("suffix", "content", "message"),
    [
        (
            "",
            idx(np.zeros((700, 28, 28)))[:-1],
            "cannot reshape array of size 548799 into shape (700,28,28)",
        ),
        ("", idx(np.zeros((700, 28, 28))) + b"x", "cannot reshape array of size 548801"),
        (
            "",
            idx(np.zeros(700)),
            "not an idx file of unsigned bytes with 3 axes: it begins with 00000801",
        ),
        ("", b"<html>", "not an idx file"),
        ("", b"", "not an idx file"),
        ("", b"\x00\x00\x08\x03\x00\x00", "not an idx file"),
        (
            "",
            idx(np.zeros((700, 20, 28))),
            "images of shape (700, 20, 28) for 700 labels of 28x28 pixels",
        ),
        (
            "",
            idx(np.zeros((600, 28, 28))),
            "images of shape (600, 28, 28) for 700 labels of 28x28 pixels",
        ),
        (".gz", truncated_gzip(idx(np.zeros((700, 28, 28)))), "not an idx file"),
        (".gz", b"not compressed", "Not a gzipped file"),
        (".gz", gzip.compress(bytes(100), mtime=0)[:12] + b"\xff" * 30, "not an idx file"),
    ],
)
def test_a_bad_image_file_is_one_line(tmp_path, suffix, content, message):
    write_mnist(tmp_path)
    (tmp_path / "MNIST" / "raw" / IMAGES).unlink()
    (tmp_path / "MNIST" / "raw" / f"{IMAGES}{suffix}").write_bytes(content)
    refused(lambda: Mnist(str(tmp_path)).load(Streams(0)), "train-", message)


def test_a_label_that_is_no_digit(tmp_path):
    write_mnist(tmp_path)
    labels = np.arange(700) % 10
    labels[3] = 11
    (tmp_path / "MNIST" / "raw" / LABELS).write_bytes(idx(labels))
    with pytest.raises(DataError, match="label 11 of record 3 is not a digit"):
        Mnist(str(tmp_path)).load(Streams(0))


def test_addresses_and_checksums_are_torchvisions():
    from torchvision.datasets import MNIST

    for name, md5 in MNIST.resources:
        file = FILES[name.removesuffix(".gz")]
        assert file.digest == f"md5:{md5}"
        assert file.urls == tuple(mirror + name for mirror in MNIST.mirrors)
        assert file.places[-1] == f"MNIST/raw/{name}"


def test_real_sizes(real_root):
    if not (Path(real_root) / "MNIST").is_dir():
        pytest.skip("no MNIST there")
    corpus = Mnist(real_root).load(Streams(0))
    assert (len(corpus.train), len(corpus.test)) == (60_000, 10_000)
    totals = np.bincount(corpus.train.y) + np.bincount(corpus.test.y)
    # LeCun, Cortes: digits in the 70,000 records
    np.testing.assert_array_equal(
        totals, [6903, 7877, 6990, 7141, 6824, 6313, 6876, 7293, 6825, 6958]
    )
    assert abs(corpus.train.x.mean()) < 0.01
    assert corpus.train.x.std() == pytest.approx(1, abs=0.01)


def test_a_file_that_unpacks_to_much_is_one_line(tmp_path, monkeypatch):
    monkeypatch.setattr("fedpriv.data.mnist.MAX_BYTES", 2**16)
    path = tmp_path / "train-images-idx3-ubyte.gz"
    path.write_bytes(gzip.compress(bytes(2**16 + 1)))
    with pytest.raises(DataError, match=f"more than {2**16} bytes"):
        read_idx(path, axes=3)
