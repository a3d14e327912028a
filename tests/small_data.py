"""Small generated files in the official layout of every data set that is read from a folder."""

from __future__ import annotations

import gzip
import json
import struct
from pathlib import Path

import numpy as np

from fedpriv.data.adult import CATEGORIES, COLUMNS, INCOME

CREDITCARD = ["Time", *(f"V{i}" for i in range(1, 29)), "Amount", "Class"]
CENTRES = {"cleveland": 61, "hungarian": 50, "switzerland": 20, "va": 30}
REGIONS = [25, 16, 17, 13, 12, 5]
"""Training patients of each region."""
TEST_PATIENTS = 3
"""Test patients of each region."""


def write_all(root: Path) -> Path:
    """All data sets below `root`."""
    write_creditcard(root / "creditcard" / "creditcard.csv")
    write_mnist(root)
    write_heart(root / "heart_disease")
    write_tcga(root / "tcga_brca")
    write_adult(root / "adult")
    write_cifar10(root / "cifar10")
    write_femnist(root / "femnist" / "data")
    write_shakespeare(root / "shakespeare" / "input.txt")
    return root


def write_creditcard(path: Path, rows: int = 600, frauds: int = 60) -> list[list[str]]:
    """A creditcard.csv; its cells, without the header."""
    rng = np.random.default_rng(0)
    labels = rng.permutation(np.arange(rows) < frauds).astype(int)
    values = rng.normal(size=(rows, 30)) + labels[:, None]
    cells = [[f"{v:.4f}" for v in row] + [str(label)] for row, label in zip(values, labels)]
    write_csv(path, [CREDITCARD, *cells])
    return cells


def write_csv(path: Path, rows: list[list[str]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(",".join(row) for row in rows) + "\n")


def write_mnist(root: Path, train: int = 700, test: int = 100) -> None:
    """The four idx files; those of the test part compressed."""
    rng = np.random.default_rng(1)
    folder = root / "MNIST" / "raw"
    folder.mkdir(parents=True, exist_ok=True)
    for part, n in (("train", train), ("t10k", test)):
        labels = rng.permutation(np.arange(n) % 10).astype(np.uint8)
        images = rng.integers(0, 256, (n, 28, 28), dtype=np.uint8)
        for name, data in (
            (f"{part}-images-idx3-ubyte", images),
            (f"{part}-labels-idx1-ubyte", labels),
        ):
            raw = idx(data)
            (folder / f"{name}.gz").write_bytes(gzip.compress(raw)) if part == "t10k" else (
                folder / name
            ).write_bytes(raw)


def cifar10(train: int = 100, test: int = 40) -> dict[str, np.ndarray]:
    """Arrays like CIFAR-10's; classes take turns, and a class' number shows in its images'
    brightness."""
    rng = np.random.default_rng(5)
    arrays = {}
    for part, n in (("train", train), ("test", test)):
        arrays[f"y_{part}"] = y = np.arange(n) % 10
        arrays[f"x_{part}"] = (
            rng.integers(0, 150, (n, 32, 32, 3)) + 10 * y[:, None, None, None]
        ).astype(np.uint8)
    return arrays


def write_cifar10(folder: Path) -> None:
    """cifar10_subset.npz."""
    folder.mkdir(parents=True, exist_ok=True)
    np.savez(folder / "cifar10_subset.npz", **cifar10())


def idx(data: np.ndarray) -> bytes:
    return (
        bytes([0, 0, 8, data.ndim])
        + struct.pack(f">{data.ndim}I", *data.shape)
        + data.astype(np.uint8).tobytes()
    )


def write_heart(folder: Path) -> None:
    """Four files without a header; every tenth patient lacks a value that the features need."""
    rng = np.random.default_rng(2)
    folder.mkdir(parents=True, exist_ok=True)
    for centre, n in CENTRES.items():
        rows = []
        for i in range(n):
            numbers = rng.integers(1, 100, 14).astype(float)
            row = [str(v) for v in numbers]
            row[2], row[6] = str(float(rng.integers(1, 5))), str(int(rng.integers(0, 3)))
            for binary in (1, 5, 8):
                row[binary] = str(float(i // binary % 2))
            row[9] = str(numbers[9] / 10)
            row[10:13] = ["?", "?", "?"]
            if centre == "switzerland":
                row[4] = "0"  # cholesterol is constant there
            if i % 10 == 9:
                row[3] = "?"
            row[13] = str(int(rng.integers(0, 5)) if i % 2 else 0)
            rows.append(row)
        write_csv(folder / f"processed.{centre}.data", rows)


def write_tcga(folder: Path) -> None:
    """brca.csv with two patients more than train_test_split.csv knows."""
    rng = np.random.default_rng(3)
    parts = [f"train_{k}" for k, n in enumerate(REGIONS) for _ in range(n)]
    parts += [f"test_{k}" for k in range(len(REGIONS)) for _ in range(TEST_PATIENTS)]
    pids = [f"TCGA-{i:04}" for i in range(len(parts) + 2)]
    header = ["pid", *(f"covariate {i}" for i in range(39)), "E", "T"]
    patients = []
    for pid in rng.permutation(pids):
        covariates = [str(v) for v in rng.integers(0, 2, 39)]
        patients.append(
            [
                str(pid),
                *covariates,
                f"{float(rng.integers(0, 2))}",
                f"{float(rng.integers(0, 3000))}",
            ]
        )
    write_csv(folder / "brca.csv", [header, *patients])
    split = [[pid, part.partition("_")[0], part] for pid, part in zip(pids, parts)]
    write_csv(folder / "train_test_split.csv", [["pid", "fold", "fold2"], *split])


def write_adult(folder: Path, rows: dict[str, int] | None = None) -> None:
    """adult.data and adult.test with their quirks; older people with more hours a week earn
    more.
    """
    rng = np.random.default_rng(4)
    folder.mkdir(parents=True, exist_ok=True)
    answers = {name: values.split() for name, values in CATEGORIES.items()}
    for name, n in (rows or {"adult.data": 500, "adult.test": 230}).items():
        lines = ["|1x3 Cross validator"] if name == "adult.test" else []
        for _ in range(n):
            numbers = {
                column: int(rng.integers(0, 100))
                for column in COLUMNS[:-1]
                if column not in answers
            }
            rich = numbers["age"] + numbers["hours-per-week"] > rng.normal(120, 20)
            cells = [
                str(numbers[c]) if c in numbers else str(rng.choice(answers[c]))
                for c in COLUMNS[:-1]
            ]
            lines.append(", ".join([*cells, INCOME[rich] + ("." if name == "adult.test" else "")]))
        (folder / name).write_text("\n".join(lines) + "\n\n")


def write_leaf(
    folder: Path, part: str, users: dict[str, tuple[list, list]], name: str = "all_data_niid.json"
) -> None:
    """One of LEAF's files."""
    path = folder / part / name
    path.parent.mkdir(parents=True, exist_ok=True)
    data = {user: {"x": x, "y": y} for user, (x, y) in users.items()}
    counts = [len(y) for _, y in users.values()]
    path.write_text(json.dumps({"users": list(users), "num_samples": counts, "user_data": data}))


def write_femnist(folder: Path, writers: int = 12) -> None:
    """Writers of 40 training and 20 test characters, digits and letters in turn; and one with too
    few digits."""
    rng = np.random.default_rng(6)
    for part, n in (("train", 40), ("test", 20)):
        users = {}
        for writer in range(writers + 1):
            rows = n if writer < writers else n // 10
            labels = [i // 2 % 10 if i % 2 else 10 + i % 52 for i in range(rows)]
            users[f"f{writer:02}"] = (np.round(rng.random((rows, 784)), 1).tolist(), labels)
        write_leaf(folder, part, users)


def write_shakespeare(path: Path, roles: int = 12) -> None:
    """Two speeches of each of 12 roles, and one who hardly says a word."""
    rng = np.random.default_rng(7)
    letters = list("abcdefghij klmn,opqrst.uvw\n xyz")
    path.parent.mkdir(parents=True, exist_ok=True)
    speeches = []
    for turn in range(2):
        for role in range(roles):
            said = "".join(rng.choice(letters, 600)).replace("\n\n", "\nI").strip("\n")
            speeches.append(f"ROLE {role}:\n{said}")
        speeches.append(f"SERVANT:\nMy lord{'.' * turn}")
    path.write_text("\n\n".join(speeches) + "\n")
