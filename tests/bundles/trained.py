"""Random tables, runs on them, and what the runs themselves compute for rows."""

from __future__ import annotations

import numpy as np
import pandas as pd
import torch
from safetensors.numpy import load_file

from fedpriv.api import run
from fedpriv.testing import experiment
from fedpriv.training.evaluate import Evaluator

LABELS = ["died", "survival", "cost"]


def random_table(rng, rows, names):
    """A table of the columns in `names`, (name: kind), with an outcome of three sorts."""
    frame = pd.DataFrame({"id": np.arange(rows) + 1})
    frame["site"] = rng.permutation(np.arange(rows) % 3)
    for name, kind in names.items():
        if kind == "category":
            frame[name] = rng.permutation([*"abc", *rng.choice([*"abc"], rows - 3)])
        else:
            frame[name] = (rng.normal(50, 20, rows) * 10 ** rng.integers(3)).round(2)
            frame.loc[rng.random(rows) < 0.1, name] = np.nan
    frame["died"] = rng.permutation([0, 1, *rng.integers(0, 2, rows - 2)])
    frame["days"] = rng.integers(1, 400, rows)
    frame["cost"] = rng.normal(1000, 300, rows).round(1)
    return frame


def trained(seed, folder):
    """A run on a random table: its words, its folder, and the rows that it was tested on, without
    label, person and silo."""
    rng = np.random.default_rng(seed)
    kinds = ["number", *rng.choice(["number", "category"], rng.integers(1, 5))]
    names = {f"x{place}": kind for place, kind in enumerate(kinds)}
    label = LABELS[seed % 3]
    drop = {"died": "[days,cost]", "survival": "[cost]", "cost": "[died,days]"}[label]
    what = ["data.label=died", "data.time=days"] if label == "survival" else [f"data.label={label}"]
    train, test = random_table(rng, 40, names), random_table(rng, 15, names)
    test["id"] += 1000
    train.to_csv(folder / "train.csv", index=False)
    test.to_csv(folder / "test.csv", index=False)
    test[[*names]].to_csv(folder / "new.csv", index=False)
    network = (
        ["model=mlp", f"model.hidden=[{rng.integers(2, 9)}]"] if seed % 2 else ["model=linear"]
    )
    words = [
        *("data=table", f"data.root={folder}", "data.path=train.csv", "data.test=test.csv"),
        *(*what, f"data.drop={drop}", "data.user=id", "data.silo=site", "data.missing=fill"),
        *("data.outside=accept", *network, "rounds=1", "preset.local_epochs=1", f"seed={seed}"),
    ]
    run(*words, folder=folder / "run")
    return words, folder / "run", test[[*names]]


def own_outputs(words, folder):
    """The outputs (n, c) of a run's released model for its own test records."""
    exp = experiment(*words)
    network = exp.model.build(exp.data.shape, exp.data.outputs)
    parameters = load_file(folder / "model.safetensors")
    theta = np.concatenate([parameters[name].ravel() for name, _ in network.named_parameters()])
    x = exp.data.load(exp.streams).test.x
    evaluator = Evaluator(network, exp.data.task)
    return evaluator.outputs(torch.from_numpy(theta), torch.from_numpy(x)).numpy()
