"""Table I of Jeon et al. (SecureD-FL) with our data, and a table of the paper's claims."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from fedpriv.data.base import DataSet
from fedpriv.data.cifar10 import Cifar10Clients
from fedpriv.data.femnist import Femnist, MnistWriters
from fedpriv.data.shakespeare import Shakespeare
from fedpriv.errors import FedprivError
from fedpriv.papers.secured_fl.claims import claims as all_claims
from fedpriv.papers.secured_fl.peer_accuracy import TITLES
from fedpriv.reports.canvas import plt, save
from fedpriv.util.streams import Streams

PAPER = {
    "Femnist": (3483, 351333, 40668),
    "Shakespeare": (715, 37986, 5464),
    "Cifar10Clients": (1000, 50000, 10000),
}
"""Users, training and test records of Table I."""
COUNTED: tuple[DataSet, ...] = (Femnist(), MnistWriters(), Shakespeare(), Cifar10Clients())
COUNTS = ["data", "users", "training", "test", "in the paper"]


def counts(folder: Path, profile: str) -> None:
    """Table I: users and records of the data sets in FEDPRIV_DATA or the cache, if they are there.

    profile: has no effect here.
    """
    rows = []
    for data in COUNTED:
        name = type(data).__name__
        paper = " / ".join(f"{number:,}" for number in PAPER.get(name, ())) or "not in it"
        try:
            corpus = data.load(Streams(0))
            users = 0 if corpus.train.user is None else corpus.train.user.max() + 1
            numbers = (f"{number:,}" for number in (users, len(corpus.train), len(corpus.test)))
            rows.append((TITLES[name](None), *numbers, paper))
        except FedprivError:
            rows.append((name, "absent", "", "", paper))
    _draw_table(folder, "counts.csv", pd.DataFrame(rows, columns=COUNTS))


def claims(folder: Path, profile: str) -> None:
    """The paper's claims, whether they hold, and the numbers that show it.

    profile: has no effect here.
    """
    _draw_table(folder, "claims.csv", all_claims().reset_index())


def _draw_table(folder: Path, name: str, table: pd.DataFrame) -> None:
    table.to_csv(folder / name, index=False)
    figure, axis = plt.subplots(figsize=(12, 0.6 + 0.42 * len(table)), layout="constrained")
    axis.axis("off")
    drawn = axis.table(
        table.to_numpy().tolist(), colLabels=table.columns.tolist(), loc="center", cellLoc="left"
    )
    drawn.auto_set_font_size(False)
    drawn.set_fontsize(9)
    drawn.auto_set_column_width(list(range(len(table.columns))))
    drawn.scale(1, 1.5)
    save(figure, folder / "figure.png")
