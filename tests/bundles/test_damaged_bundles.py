"""Bundles of strangers: damaged or hostile ones end in one line, and run no code."""

import hashlib
import json
import shutil

import numpy as np
import pandas as pd
import pytest
from refusals import refused

from fedpriv.bundles.model import load_model
from fedpriv.errors import FedprivError

FILES = ("bundle.json", "network.json", "model.safetensors", "certificate.csv", "model.onnx")
VALUES = (None, True, -1, 10**30, 0.5, float("nan"), "x", "../x", [], {}, [[]], {"node": 0})
"""What a field is replaced by."""
DAMAGES = ("flip", "cut", "replace")


def fields_of(tree, path=()):
    """The paths of all values of a tree."""
    yield path
    parts = (
        tree.items()
        if isinstance(tree, dict)
        else enumerate(tree)
        if isinstance(tree, list)
        else ()
    )
    for key, value in parts:
        yield from fields_of(value, (*path, key))


def replaced(tree, path, value):
    for key in path[:-1]:
        tree = tree[key]
    tree[path[-1]] = value


def write(place, name, content):
    """Write a file of a bundle, and its digest, as a stranger can."""
    (place / name).write_bytes(content)
    said = json.loads((place / "bundle.json").read_text()) if name != "bundle.json" else {}
    if name in said.get("digests", {}):
        said["digests"][name] = hashlib.sha256(content).hexdigest()
        (place / "bundle.json").write_text(json.dumps(said))


def damage(place, rng):
    name, how = FILES[rng.integers(len(FILES))], DAMAGES[rng.integers(3)]
    content = (place / name).read_bytes()
    spot = int(rng.integers(len(content)))
    if how == "replace" and name.endswith(".json"):
        tree = json.loads(content)
        paths = [path for path in fields_of(tree) if path]
        replaced(tree, paths[rng.integers(len(paths))], VALUES[rng.integers(len(VALUES))])
        content = json.dumps(tree).encode()
    elif how == "cut":
        content = content[:spot]
    else:
        content = (
            content[:spot] + bytes([content[spot] ^ 1 << rng.integers(8)]) + content[spot + 1 :]
        )
    write(place, name, content)
    return name


def test_damaged_bundles_end_in_one_line(world, tmp_path):
    """Or are used, where nothing but a text or a number changed."""
    lines = []
    for seed in range(200):
        place = tmp_path / "bundle"
        shutil.copytree(world / "given", place)
        name = damage(place, np.random.default_rng(seed))
        try:
            load_model(place, onnx=name == "model.onnx").scores(world / "visits.csv")
        except FedprivError as error:
            lines.append(str(error))
        shutil.rmtree(place)
    assert not any("\n" in line for line in lines)
    assert len(lines) > 100


LIES = {
    "more outputs": ({"task": "raw", "classes": [], "outputs": 3}, "outputs of shape (60, 2)"),
    "another task": ({"task": "number", "classes": []}, "number: 0 classes for 2 outputs"),
    "a logit": ({"task": "logit"}, "logit: 2 classes for 2 outputs"),
    "classes of no class": ({"task": "raw"}, "raw: 2 classes for 2 outputs"),
    "a class twice": ({"classes": ["0", "0"]}, "classes: 2 classes for 2 outputs"),
}
"""What bundle.json says of a network of two classes, and the end of the line."""


@pytest.mark.parametrize("case", LIES)
def test_what_a_bundle_says_of_its_outputs_must_hold(case, world, tmp_path):
    lies, line = LIES[case]
    place = tmp_path / "bundle"
    shutil.copytree(world / "given", place)
    said = json.loads((place / "bundle.json").read_text()) | lies
    write(place, "bundle.json", json.dumps(said).encode())
    frame = pd.read_csv(world / "visits.csv").head(60)
    refused(lambda: load_model(place).outputs(frame), "not a readable bundle", line)


LINEAR = {"kind": "Linear", "arguments": {"in_features": 1, "out_features": 2, "bias": False}}
RECORDS = {"op": "records"}
X = [{"node": 0}]
HOSTILE = {
    "a function of Python": (
        [RECORDS, {"op": "function", "name": "os.system", "args": ["true"]}],
        "'os.system'",
    ),
    "a function of torch": (
        [RECORDS, {"op": "function", "name": "torch.load", "args": ["x"]}],
        "'torch.load'",
    ),
    "a method": (
        [RECORDS, {"op": "method", "name": "__reduce__", "args": X}],
        "an operation method of __reduce__",
    ),
    "a method of a text": (
        [RECORDS, {"op": "method", "name": "norm", "args": ["x"]}],
        "an operation method of norm",
    ),
    "an attribute": (
        [RECORDS, {"op": "function", "name": "getattr", "args": [*X, "__class__"]}],
        "an attribute __class__; allowed: the shape of a tensor",
    ),
    "a layer": (
        [RECORDS, {"op": "layer", "kind": "Module", "arguments": {}, "tensors": {}, "args": X}],
        "'Module'",
    ),
    "many layers": (
        [
            RECORDS,
            {
                "op": "layer",
                "kind": "GRU",
                "tensors": {},
                "args": X,
                "arguments": {"input_size": 1, "hidden_size": 1, "num_layers": 10**9},
            },
        ],
        "more than 100 recurrent layers in one",
    ),
    "a later node": (
        [{"op": "output", "args": [{"node": 1}]}, RECORDS],
        "an argument {'node': 1}",
    ),
    "a long list": (
        [{"op": "function", "name": "operator.mul", "args": [[0], 10**9]}],
        "an operator without a tensor",
    ),
    "a large size": (
        [{"op": "function", "name": "operator.mul", "args": [2, 2**31]}],
        "an argument 2147483648",
    ),
    "a large power": (
        [{"op": "function", "name": "operator.pow", "args": [9, 10**9]}],
        "descriptor 'pow'",
    ),
    "much memory": (
        [
            RECORDS,
            {
                "op": "function",
                "name": "torch.nn.functional.adaptive_avg_pool2d",
                "args": [*X, [10**4, 10**4]],
            },
        ],
        "more than 4194304 numbers of a record between two layers",
    ),
    "a tensor of another shape": (
        [RECORDS, {"op": "layer", **LINEAR, "tensors": {"weight": "0.weight"}, "args": X}],
        "tensor 0.weight has another shape",
    ),
    "no node": ([], "0 nodes; from 1 to 10000 are read"),
}
"""Nodes, and what is said of them."""


@pytest.mark.parametrize("case", HOSTILE)
def test_a_network_of_a_stranger_runs_no_code(case, world, tmp_path):
    nodes, part = HOSTILE[case]
    place = tmp_path / "bundle"
    shutil.copytree(world / "given", place)
    shape = [1, 8, 8] if case == "much memory" else [1]
    tree = {"shape": shape, "dtype": "float32", "nodes": nodes}
    write(place, "network.json", json.dumps(tree).encode())
    refused(lambda: load_model(place), f"not a readable bundle: {part}")
