"""Damaged data files: one line that names the file, a warning, or as many records with possible
values. Never a traceback, and never fewer records in silence."""

import random
import shutil
import warnings

import numpy as np
import pytest
from small_data import (
    CENTRES,
    REGIONS,
    TEST_PATIENTS,
    write_adult,
    write_cifar10,
    write_creditcard,
    write_femnist,
    write_heart,
    write_leaf,
    write_mnist,
    write_shakespeare,
    write_tcga,
)
from test_cifar10 import write_archive, write_folder

from fedpriv.data.adult import Adult
from fedpriv.data.cifar10 import BATCHES, Cifar10
from fedpriv.data.creditcard import CreditCard
from fedpriv.data.femnist import Femnist
from fedpriv.data.files import OFFICIAL_RECORDS
from fedpriv.data.heart_disease import HeartDisease
from fedpriv.data.mnist import Mnist
from fedpriv.data.shakespeare import Shakespeare
from fedpriv.data.tcga_brca import TcgaBrca
from fedpriv.errors import DataError, FedprivError
from fedpriv.util.streams import Streams


def write_roles(root):
    """LEAF's Shakespeare."""
    rng = random.Random(7)
    for part, n in (("train", 20), ("test", 3)):
        users = {
            f"ROLE {role}": (
                ["".join(rng.choices("abc d", k=80)) for _ in range(n)],
                rng.choices("abc", k=n),
            )
            for role in range(5)
        }
        write_leaf(root / "shakespeare" / "data", part, users)


LAYOUTS = {
    "creditcard": (lambda root: write_creditcard(root / "creditcard.csv", 80, 20), CreditCard),
    "mnist": (lambda root: write_mnist(root, 60, 30), Mnist),
    "heart": (write_heart, HeartDisease),
    "tcga": (write_tcga, TcgaBrca),
    "adult": (lambda root: write_adult(root, {"adult.data": 400, "adult.test": 200}), Adult),
    "cifar subset": (lambda root: write_cifar10(root / "cifar10"), Cifar10),
    "cifar folder": (write_folder, Cifar10),
    "cifar archive": (write_archive, Cifar10),
    "femnist": (lambda root: write_femnist(root / "femnist" / "data", 2), Femnist),
    "shakespeare": (lambda root: write_shakespeare(root / "shakespeare/input.txt", 4), Shakespeare),
    "leaf shakespeare": (write_roles, Shakespeare),
}
PATIENTS = sum(REGIONS) + len(REGIONS) * TEST_PATIENTS
SMALL = {
    "creditcard.csv": 80,
    "train-images-idx3-ubyte": 60,
    "t10k-images-idx3-ubyte": 30,
    **{f"processed.{centre}.data": count for centre, count in CENTRES.items()},
    "brca.csv": PATIENTS + 2,
    "train_test_split.csv": PATIENTS,
    "adult.data": 400,
    "adult.test": 200,
    **dict.fromkeys(BATCHES, 20),
    BATCHES[-1]: 40,
}
"""The sizes of the generated files, which count as the official ones here."""


@pytest.fixture(scope="module")
def roots(tmp_path_factory):
    """A folder for each layout."""
    found = {}
    for name, (write, _) in LAYOUTS.items():
        found[name] = tmp_path_factory.mktemp("whole")
        write(found[name])
    return found


@pytest.fixture
def small_is_official(monkeypatch, roots):
    for name, count in SMALL.items():
        monkeypatch.setitem(OFFICIAL_RECORDS, name, count)
    text = roots["shakespeare"] / "shakespeare" / "input.txt"
    monkeypatch.setitem(OFFICIAL_RECORDS, "input.txt", text.stat().st_size)


def loaded(layout, root):
    """The corpus, and whether there was a warning."""
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        corpus = LAYOUTS[layout][1](str(root)).load(Streams(0))
    return corpus, bool(told)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_an_undamaged_file_is_read_without_a_warning(layout, roots, small_is_official):
    corpus, told = loaded(layout, roots[layout])
    assert not told
    assert len(corpus.train)
    assert len(corpus.test)


CELLS = ["", " ", "nan", "inf", "-inf", "1e300", "-1e12", "abc", '"', "1,2", "\x00", "é", "?", "#"]
TABLES = (".csv", ".data", ".test", ".txt")


def damage_bytes(raw, rng):
    """Cut, change, repeat or replace bytes."""
    place = rng.randrange(len(raw) + 1)
    some = rng.randint(1, max(2, len(raw) // 3))
    line = raw.rfind(b"\n", 0, place) + 1
    others = [b"", b"<html>404</html>", b"\x00" * 64, b"\xff\xfe" + raw, b"[]"]
    ways = [
        raw[:place],
        raw[:place] + raw[place + some :],
        raw[:place] + rng.randbytes(rng.randint(1, 4)) + raw[place + 1 :],
        raw[:place] + raw[max(0, place - some) : place] + raw[place:],
        rng.choice(others),
        raw + rng.choice([b"\n", b"x", b"\x00", raw]),
        bytes(rng.choice([byte, byte, byte ^ 1]) for byte in raw[:64]) + raw[64:],
        raw[:line] or raw[:place],
    ]
    return rng.choice(ways)


def damage_lines(raw, rng):
    """Change a cell, or drop, repeat or exchange lines."""
    lines = raw.decode().split("\n")
    place = rng.randrange(len(lines))
    cells = lines[place].split(",")
    cells[rng.randrange(len(cells))] = rng.choice(CELLS)
    changed = [*lines[:place], ",".join(cells), *lines[place + 1 :]]
    ways = [
        [*lines[:place], *lines[place + 1 :]],
        [*lines[:place], rng.choice(lines), *lines[place:]],
        lines[:place],
        changed,
        changed,
    ]
    return "\n".join(rng.choice(ways)).encode()


def damage(root, rng):
    """Damage one file below `root`."""
    path = rng.choice(sorted(path for path in root.rglob("*") if path.is_file()))
    own = damage_lines if path.suffix in TABLES else damage_bytes
    match rng.randrange(12):
        case 0:
            path.unlink()
        case 1:
            other = rng.choice(sorted(path.parent.iterdir()))
            path.write_bytes(other.read_bytes())
        case choice:
            path.write_bytes((own if choice < 9 else damage_bytes)(path.read_bytes(), rng))
    return path


def verdict(layout, root, expected):
    """How a damaged folder ends: told of, read, or in silence with fewer or impossible records."""
    try:
        corpus, told = loaded(layout, root)
    except FedprivError as error:
        text = str(error)
        assert "\n" not in text
        assert str(root) in text or any(name in text for name in ("adult", "femnist")), text
        return "told"
    if told:
        return "told"
    outputs = LAYOUTS[layout][1].outputs
    for part, before in ((corpus.train, expected.train), (corpus.test, expected.test)):
        possible = np.isfinite(part.x).all() and np.isfinite(part.y).all()
        if outputs > 1:
            possible = possible and part.y.min() >= 0 and part.y.max() < outputs
        if not possible or len(part) != len(before):
            return "silent"
    return "read"


@pytest.mark.parametrize("layout", LAYOUTS)
def test_damage_is_seen(layout, roots, small_is_official, monkeypatch, tmp_path):
    """Twelve damages of each layout."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    expected, _ = loaded(layout, roots[layout])
    found = []
    for seed in range(12):
        root = shutil.copytree(roots[layout], tmp_path / str(seed))
        path = damage(root, random.Random(f"{layout} {seed}"))
        found.append(verdict(layout, root, expected))
        assert found[-1] != "silent", f"{layout}, damage {seed} of {path}"
    assert found.count("told") >= 4


@pytest.mark.parametrize("part", ["train", "test"])
def test_a_split_without_a_part_is_one_line(part, tmp_path):
    write_tcga(tmp_path)
    path = tmp_path / "train_test_split.csv"
    header, *lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join([header, *(line for line in lines if f",{part}," not in line)]))
    with (
        pytest.warns(RuntimeWarning, match="the official file has"),
        pytest.raises(DataError, match=f"no patient of the {part} part"),
    ):
        TcgaBrca(str(tmp_path)).load(Streams(0))


@pytest.mark.parametrize("name", ["processed.va.data", "processed.cleveland.data"])
def test_a_file_cut_at_a_line_end_is_told(name, roots, small_is_official, tmp_path):
    root = shutil.copytree(roots["heart"], tmp_path / "heart")
    lines = (root / name).read_text().splitlines(keepends=True)
    (root / name).write_text("".join(lines[:-1]))
    with pytest.warns(RuntimeWarning, match=f"{name}: {len(lines) - 1} records"):
        HeartDisease(str(root)).load(Streams(0))
