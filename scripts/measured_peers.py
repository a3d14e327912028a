"""Measure SecureD-FL beside its baselines: `python -m scripts.measured_peers FOLDER ...` writes the
table.

The folders hold runs of secured_fl/fig3_femnist and secured_fl/fig3_shakespeare, at any depth. The
table is results/secured_fl.csv. The script also prints the text for docs/papers/secured_fl.md; a
test compares it.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pandas as pd

from fedpriv.reports.finished_runs import Run, find_runs

TABLE = Path(__file__).parents[1] / "results" / "secured_fl.csv"
TITLES = {
    "Femnist": "FEMNIST digits",
    "MnistWriters": "MNIST with writers made up, in FEMNIST's place",
    "Shakespeare": "Shakespeare, next character",
    "Cifar10Clients": "CIFAR-10",
}
"""By the data set's class."""


def main(words: list[str]) -> None:
    """Write the table of the runs in some folders."""
    TABLE.parent.mkdir(exist_ok=True)
    found = summary(table_of(find_runs([Path(word) for word in words])))
    found.to_csv(TABLE, index=False, float_format="%.5f")
    print(page(read()))


def read(path: Path = TABLE) -> pd.DataFrame:
    """The rows of the table."""
    return pd.read_csv(path)


def table_of(runs: list[Run]) -> pd.DataFrame:
    """The metrics of all runs, sorted by data, number of peers and method."""
    parts = [
        run.metrics.assign(
            run=number,
            data=title(run),
            peers=int(run.config["allocator"]["n_silos"]),
            method=method(run),
            settings=settings(run),
            accuracy=run.metrics[run.status.metric],
        )
        for number, run in enumerate(runs)
    ]
    order = ["data", "peers", "method"]
    return pd.concat(parts, ignore_index=True).sort_values(order, kind="stable")


def summary(table: pd.DataFrame) -> pd.DataFrame:
    """A row for each data set, number of peers and method, as in Table II.

    The best round is chosen on test records, as in Table II, which flatters.
    """
    place = ["data", "peers", "method"]
    by_run = table.groupby([*place, "run"])
    found = by_run["accuracy"].agg(last="last", best="max")
    found = found.join(by_run[["round", "settings"]].last()).groupby(place)
    means = found[["last", "best"]].mean()
    spread = found[["last", "best"]].std(ddof=0)
    return pd.DataFrame(
        {
            "seeds": found.size(),
            "rounds": found["round"].first(),
            "last": means["last"],
            "last deviation": spread["last"],
            "best": means["best"],
            "best deviation": spread["best"],
            "settings": found["settings"].first(),
        }
    ).reset_index()


def title(run: Run) -> str:
    """The name of the run's data."""
    return TITLES[run.config["data"]["_target_"].rpartition(".")[2]]


def settings(run: Run) -> str:
    """The other settings that matter: number of records, network, local training."""
    chosen = {group: run.config.get(group, {}) for group in ("data", "model")}
    words = [
        f"{group}.{key}={value}"
        for group, values in chosen.items()
        for key, value in values.items()
        if key not in ("_target_", "root")
    ]
    algo = run.config["algo"]
    words += [
        f"algo.{key}={algo[key]}"
        for key in ("local_lr", "batch_size", "keep_optimizer")
        if key in algo
    ]
    return " ".join(words)


def method(run: Run) -> str:
    """The run's method, and whether the peers share first weights."""
    name = run.status.label
    return f"{name}, shared weights" if run.config["algo"].get("init_weights") == "shared" else name


def page(table: pd.DataFrame) -> str:
    """Accuracies in per cent, a row for each task and method."""
    table = table.assign(data=table["data"].str.split(r" with |, ", regex=True).str[0])
    lines = [
        "| records | peers | method | rounds | seeds | last round | best round |",
        "| --- " * 7 + "|",
    ]
    about = table[["data", "peers", "method", "rounds", "seeds"]]
    cells = zip(about.to_numpy().tolist(), cell(table, "last"), cell(table, "best"))
    lines += [f"| {' | '.join(map(str, (*own, last, best)))} |" for own, last, best in cells]
    return "\n".join(lines)


def cell(table: pd.DataFrame, key: str) -> list[str]:
    """Accuracies in per cent, with a deviation where there are several seeds."""
    rows = zip(100 * table[key], 100 * table[f"{key} deviation"], table["seeds"])
    return [f"{mean:.2f}{f' ± {spread:.2f}' if seeds > 1 else ''}" for mean, spread, seeds in rows]


if __name__ == "__main__":
    main(sys.argv[1:])
