"""Every benchmark runs at tiny size and prints a ratio, or says why it cannot run here."""

import importlib
import pkgutil
import re
from pathlib import Path

import pytest
from command import run

import benchmarks
from benchmarks import (
    clipped_gradients,
    local_training,
    one_process,
    own_networks,
    private_weighting,
    secure_aggregation,
    shuffle_exchange,
    threads,
    trainers,
)

ONE_TURN = {"TURNS": 1}
TINY = {
    "clipped_gradients": {**ONE_TURN, "ROWS": 8, "CASES": clipped_gradients.CASES[:1]},
    "exact_noise": {**ONE_TURN, "CASES": [(12, 100)]},
    "local_training": {
        **ONE_TURN,
        "CASES": [local_training.Case("creditcard", 10, 1, 5, 1)],
    },
    "noise_sampling": {**ONE_TURN, "SIZE": 1000},
    "one_process": {**ONE_TURN, "CASES": [one_process.Case(5, ("aggregation=masked",), 60.0)]},
    "own_networks": {
        **ONE_TURN,
        "USERS": {"images": 1, "features": 2},
        "CASES": own_networks.CASES[1:2],
    },
    "private_weighting": {
        **ONE_TURN,
        "KEY_BITS": 512,
        "N_MAX": 10,
        "CASES": [private_weighting.Case(2, 8, "1x")],
    },
    "scaling": {"ROUNDS": 1, "USERS": (400,), "SILOS": (40,), "WIDTHS": (4,), "WIDEST": 5},
    "secure_aggregation": {
        **ONE_TURN,
        "CASES": [],
        "COMPLETE": secure_aggregation.Case(20, 100, 1, 64),
        "SPARSE": secure_aggregation.Case(30, 100, 1, 64, sparse=True),
        "LARGE": secure_aggregation.Case(40, 100, 2, 64, sparse=True),
        "SHAMIR_SILOS": (5,),
    },
    "shuffle_exchange": {
        **ONE_TURN,
        "CASES": (shuffle_exchange.Case("tiny", 3, 4, 20, 2),),
    },
    "shuffle_rounds": {
        "ROUNDS": 1,
        "RECORDS": 20,
        "CASES": (("algo=prox_sgd",),),
    },
    "sites": {**ONE_TURN, "SILOS": 3, "WIDTH": 4},
    "sweep": {
        **ONE_TURN,
        "EPSILONS": "3",
        "STEPS": "0.1",
        "CLIPS": "1,2",
        "SLICE": 1,
        "ROUNDS": 1,
        "run_command": lambda overrides: run(*overrides, cwd=Path.cwd()),
        "STEP_SIZES": {"minibatch_sgd": "global_lr"},
    },
    "threads": {**ONE_TURN, "CASES": [threads.Case("creditcard", 10, 1)]},
    "trainers": {"CASES": [trainers.Case("creditcard", 10, 1, 1, 1)]},
}
"""Values that make each benchmark tiny."""
SKIPPED = {
    "peers.gpu": "needs a GPU and a checkout of uldp-fl",
    "peers.one_user_silos": "needs an interpreter with pfl-research or Flower",
    "peers.picture": "draws results of other benchmarks",
    "peers.secaggplus": "needs an interpreter with Flower",
    "peers.uldp_fl": "needs a checkout of uldp-fl",
}
"""Benchmarks that cannot run here, with the reason."""


def found():
    """Names of all benchmarks below the package."""
    modules = pkgutil.walk_packages(benchmarks.__path__, "benchmarks.")
    names = [module.name.removeprefix("benchmarks.") for module in modules if not module.ispkg]
    return {name for name in names if not name.rpartition(".")[2].startswith("_")}


def test_every_benchmark_is_here():
    assert found() == {*TINY, *SKIPPED}


@pytest.fixture
def _few_records(monkeypatch):
    """Random records in place of a data set's, which would take seconds to read."""
    load = local_training.load

    def few(name):
        data, records = load(name)
        return data, type(records)(records.x[:200], records.y[:200])

    monkeypatch.setenv("FEDPRIV_DATA", "nowhere")
    monkeypatch.setattr(local_training, "load", few)


@pytest.mark.usefixtures("_few_records")
@pytest.mark.parametrize("name", TINY)
def test_it_runs_and_prints_a_ratio(name, monkeypatch, capsys):
    """In this process; loading torch in a new one takes longer than the benchmark."""
    module = importlib.import_module(f"benchmarks.{name}")
    for key, value in TINY[name].items():
        assert hasattr(module, key), key
        monkeypatch.setattr(module, key, value)
    monkeypatch.setattr(module, "in_fresh_process", lambda work, *arguments: work(*arguments))
    module.main()
    printed = capsys.readouterr().out
    assert "ratio" in printed or re.search(r"\(\s*\d+(\.\d)?x\)", printed), printed
    assert "nan" not in printed


@pytest.mark.parametrize("name", SKIPPED)
def test_it_can_at_least_be_imported(name):
    importlib.import_module(f"benchmarks.{name}")
    pytest.skip(SKIPPED[name])
