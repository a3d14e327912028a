"""Table I of Jeon et al. (SecureD-FL), realised, and what the paper says of itself, as pictures of
tables."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fedpriv.data.base import DataSet
from fedpriv.data.cifar10 import Cifar10Clients
from fedpriv.data.femnist import Femnist, MnistWriters
from fedpriv.data.shakespeare import Shakespeare
from fedpriv.errors import FedprivError
from fedpriv.papers.secured_fl.claims import claims as all_claims
from fedpriv.papers.secured_fl.peer_accuracy import TITLES
from fedpriv.reports.canvas import plt
from fedpriv.reports.number_table import write_table
from fedpriv.util.streams import Streams

PAPER = {
    "Femnist": (3483, 351333, 40668),
    "Shakespeare": (715, 37986, 5464),
    "Cifar10Clients": (1000, 50000, 10000),
}
"""Users, training and test records of Table I."""
COUNTED: tuple[DataSet, ...] = (Femnist(), MnistWriters(), Shakespeare(), Cifar10Clients())
COUNTS = ("data", "users", "training", "test", "in the paper")
CLAIMS = ("place", "says", "holds", "found")


def counts(folder: Path, profile: str) -> bool:
    """Table I: users and records of the data sets below FEDPRIV_DATA or in the cache; those that
    are absent say so."""
    rows = []
    for data in COUNTED:
        name = type(data).__name__
        paper = (
            " / ".join(f"{number:,}" for number in PAPER[name]) if name in PAPER else "not in it"
        )
        try:
            corpus = data.load(Streams(0))
            title = TITLES[name](None)
        except FedprivError:
            rows.append((name, "absent", "", "", paper))
            continue
        assert corpus.train.user is not None
        rows.append(
            (
                title,
                f"{corpus.train.user.max() + 1:,}",
                f"{len(corpus.train):,}",
                f"{len(corpus.test):,}",
                paper,
            )
        )
    return _table(folder, "counts.csv", COUNTS, rows)


def claims(folder: Path, profile: str) -> bool:
    """What the paper claims, whether it holds, and the numbers that say so."""
    rows = [(claim.place, claim.says, claim.holds, claim.found) for claim in all_claims()]
    return _table(folder, "claims.csv", CLAIMS, rows)


def _table(folder: Path, name: str, columns: Sequence[str], rows: list[tuple[Any, ...]]) -> bool:
    folder.mkdir(parents=True, exist_ok=True)
    write_table(folder / name, columns, rows)
    figure, axis = plt.subplots(figsize=(12, 0.6 + 0.42 * len(rows)), layout="constrained")
    axis.axis("off")
    drawn = axis.table(
        [[str(cell) for cell in row] for row in rows],
        colLabels=columns,
        loc="center",
        cellLoc="left",
    )
    drawn.auto_set_font_size(False)
    drawn.set_fontsize(9)
    drawn.auto_set_column_width(list(range(len(columns))))
    drawn.scale(1, 1.5)
    figure.savefig(folder / "figure.png", dpi=150)
    plt.close(figure)
    return True
