"""The label of every published value: what it may be used for.

`charged`: made with noise that an epsilon of the run pays for.
`released`: computed from charged values, settings and public records. It costs nothing more.
`diagnostic`: computed from private records without noise. No epsilon covers it, nor a choice by it.

A column that no table here names is a diagnostic. After "diagnostic of" a label says what it is
made of.
"""

from __future__ import annotations

RELEASED, CHARGED, DIAGNOSTIC = ("released", "charged", "diagnostic")
TRAINING = f"{DIAGNOSTIC} of training records"
PERSONS = f"{DIAGNOSTIC} of test records of persons"
HELD_BACK = f"{DIAGNOSTIC} of records that are held back from users who train"
UNCERTIFIED = f"{DIAGNOSTIC} of a model without a certificate"
NOT_RELEASED = f"{DIAGNOSTIC} of models that silos keep"
CLOCK = f"{DIAGNOSTIC} of times and failures of the parties"
UNKNOWN = f"{DIAGNOSTIC} of unknown records"

TEST_METRICS = (
    *("loss", "accuracy", "balanced_accuracy", "error"),
    *("c_index", "r2", "rmse", "mae"),
)
"""Metrics of the released model on the central test records."""
LOCAL = "local_"
"""Metrics on records that silos hold back begin so."""

CLIP = "clip"
"""Column of metrics.csv with the bound of the next round, if it adapts. It is read off noised sums,
as the model is."""

ON_TRAINING = (
    *("train_loss", "gradient_norm", "mapping_norm", "heterogeneity", "excess_risk"),
    *("update_norm", "contribution_norm", "clipped", "contributions", "nonfinite"),
)
"""Columns of metrics.csv that look at training records, at contributions before the noise, or at
the state between two rounds."""


def metric_label(
    name: str,
    *,
    main: str,
    disjoint: bool,
    certified: bool,
    kept: bool = False,
    private: bool = False,
) -> str:
    """The label of a column of metrics.csv.

    main: the main metric of the task, which is one of the released model on test records.
    disjoint: whether the test records belong to nobody who trains.
    certified: whether the released model has a certificate.
    kept: whether another model is evaluated, made of what silos remember.
    private: whether the test records are of persons who may not want to be in a public test set.
    """
    rules = (
        (name == "round", RELEASED),
        (name.startswith(LOCAL), HELD_BACK),
        (name in ON_TRAINING, TRAINING),
        (name not in (*TEST_METRICS, main, CLIP), UNKNOWN),
        (not certified, UNCERTIFIED),
        (name == CLIP, RELEASED),
        (kept, NOT_RELEASED),
        (private, PERSONS),
        (disjoint, RELEASED),
        (True, HELD_BACK),
    )
    return next(label for holds, label in rules if holds)


TABLES: dict[str, dict[str, str]] = {
    "epsilon.csv": dict.fromkeys(
        (
            *("round", "observer", "unit", "adjacency", "method"),
            *("certified", "claimed", "assumptions", "status", "group"),
        ),
        RELEASED,
    ),
    "assumptions.csv": dict.fromkeys(("round", "number", "assumption"), RELEASED),
    "statistics.csv": {
        **dict.fromkeys(("column", "statistic", "of", "low", "high"), RELEASED),
        "value": CHARGED,
    },
    "timings.csv": {
        "round": RELEASED,
        **dict.fromkeys(
            (
                *("plan", "accounting", "local_training", "aggregation"),
                *("global_update", "evaluation", "aborted", "empty"),
            ),
            CLOCK,
        ),
    },
    "traffic.csv": {
        **dict.fromkeys(("round", "query", "step", "party"), RELEASED),
        **dict.fromkeys(("messages", "bytes"), CLOCK),
    },
    "ledger.json": {
        **dict.fromkeys(("ledger", "population", "unit", "budget", "delta"), RELEASED),
        **dict.fromkeys(("run", "spent", "entries", "digest"), CLOCK),
    },
    "rounds_begun.csv": {"round": RELEASED, "time": CLOCK},
    "status.json": {
        **dict.fromkeys(
            (
                *("rounds", "label", "metric", "observer", "delta", "randomness", "dp_valid"),
                *("not_covered", "labels", "device", "parameters", "versions", "warnings"),
                *("tracker", "noise", "target", "epsilon", "users", "commit", "trainer", "devices"),
                "simulated",
            ),
            RELEASED,
        ),
        **dict.fromkeys(("records", "identity", "empty_rounds"), TRAINING),
        **dict.fromkeys(
            (
                *("updated", "state", "repeated_rounds", "reason", "traceback"),
                *("aborted_rounds", "left_out", "lost_parties", "repeats_differ", "set_ups"),
            ),
            CLOCK,
        ),
    },
}
"""Columns and keys of the other tables of a run."""

FILES: dict[str, str] = {
    "config.yaml": RELEASED,
    "roster.csv": RELEASED,
    "model.safetensors": CHARGED,
    "bundle/model.safetensors": CHARGED,
    "bundle/network.json": RELEASED,
    "bundle/certificate.csv": RELEASED,
    "bundle/bundle.json": f"{DIAGNOSTIC} of records, where its own labels say so",
    "bundle/README.md": f"{DIAGNOSTIC} of records, where its own labels say so",
    "run.log": f"{DIAGNOSTIC} of times, failures and how records were read",
    "checkpoint.safetensors": (
        f"{DIAGNOSTIC} of the parties' memories, in which contributions may be raw"
    ),
}
"""Files that are no tables."""


Labels = dict[str, str | dict[str, str]]
"""Labels by file, and by column or key where the file has some."""


def run_labels(
    *, main: str, disjoint: bool, certified: bool, kept: bool = False, private: bool = False
) -> Labels:
    """The label of every file of a run, and of every column and key of its tables, as status.json
    has them. The arguments are those of `metric_label`."""
    metrics = ("round", CLIP, *dict.fromkeys((main, *TEST_METRICS)), f"{LOCAL}{main}", *ON_TRAINING)
    found = {
        name: metric_label(
            name, main=main, disjoint=disjoint, certified=certified, kept=kept, private=private
        )
        for name in metrics
    }
    utility = {
        **dict.fromkeys(("part", "records"), PERSONS if private else RELEASED),
        "metric": RELEASED,
        "model": found[main],
        **dict.fromkeys(("trivial", "without_privacy"), TRAINING),
    }
    labels: Labels = {"metrics.csv": found, "utility.csv": utility, **TABLES, **FILES}
    if not certified:
        labels["model.safetensors"] = labels["bundle/model.safetensors"] = UNCERTIFIED
        labels["statistics.csv"] = dict.fromkeys(TABLES["statistics.csv"], UNCERTIFIED)
    return labels
