"""Descriptions of parties travel as data: they come back unchanged, and reading them runs no code
but that of dataclasses."""

from dataclasses import dataclass, replace
from enum import Enum
from pathlib import Path

import numpy as np
import pytest
import torch
from equal_values import same
from scripted_parties import Role

from fedpriv.engines.descriptions import describe, restore
from fedpriv.engines.inprocess import InProcess
from fedpriv.errors import ConfigError
from fedpriv.parties.messages import decode, encode
from fedpriv.parties.party import PartySpec
from fedpriv.runtime import prepare
from fedpriv.testing import experiment


class Colour(Enum):
    RED = 1


@dataclass(frozen=True)
class Held:
    number: int
    name: str = "a"


def through(spec):
    return restore(decode(encode(describe(spec, "silo0"))))


class Opened(Exception):
    pass


@dataclass(frozen=True)
class Engine(InProcess):
    """Keeps the descriptions that it is asked to open."""

    def open(self, specs, memories):
        raise Opened(specs)


def specs_of(*words):
    exp = experiment("data=breast_cancer", "allocator.n_silos=4", "rounds=2", *words)
    with pytest.raises(Opened) as opened:
        prepare(replace(exp, engine=Engine()))
    return opened.value.args[0]


RUNS = [
    ("algo=uldp_avg_w", "aggregation=private_weighting", "aggregation.key_bits=1024"),
    ("algo=dp_erm", "model=bounded_linear", "aggregation=secagg"),
    ("algo=uldp_sgd", "aggregation=secagg_exact_noise"),
    ("algo=uldp_sgd", "aggregation=masked", "mechanism=discrete_gaussian"),
    ("algo=secured_fl", "aggregation=admm", "aggregation.masking=true"),
    ("algo=scaffold",),
    ("algo=local_only",),
]


@pytest.mark.parametrize("words", RUNS, ids=" ".join)
def test_real_descriptions_come_back_unchanged(words):
    for spec in specs_of(*words).values():
        back = through(spec)
        assert same(spec, back)
        assert back.settings.digest == spec.settings.digest
        if hasattr(spec, "network"):
            pairs = zip(spec.network.module.parameters(), back.network.module.parameters())
            assert all(torch.equal(one, other) for one, other in pairs)


def test_plain_values_come_back_with_their_types():
    held = (
        *(None, True, 10**400, 1.5, float("inf"), "text", b"\0bytes", Path("a/b"), Colour.RED),
        *([1, [2]], {1: "a", (2, 3): frozenset({4})}, {"x"}, Held(3), np.float64(0.1)),
        *(np.arange(3, dtype=np.uint8), torch.tensor([[1.5]]), torch.tensor([7])),
    )
    assert same(through(Role(held)).belongings, held)


@pytest.mark.parametrize("held", [print, object(), Held, lambda: None, iter(())])
def test_what_is_no_data_is_one_line(held):
    with pytest.raises(ConfigError) as found:
        describe(Role([held]), "silo3")
    assert "silo3.belongings[0]" in str(found.value)
    assert "\n" not in str(found.value)


def test_a_class_that_no_other_process_can_import_is_one_line():
    @dataclass(frozen=True)
    class Hidden(PartySpec):
        def open(self, memory):
            raise NotImplementedError

    with pytest.raises(ConfigError, match="no module that other processes can import"):
        describe(Hidden(), "silo0")


ROLE = "scripted_parties:Role"


@pytest.mark.parametrize(
    "message",
    [
        b"cos\nsystem\n(S'true'\ntR.",
        (),
        ("list", 1),
        ("list", []),
        ("dict", [1]),
        (["list"], []),
        ("os:system", {"command": "touch ran"}),
        ("subprocess:Popen", {"args": ("list", ["touch", "ran"])}),
        ("builtins:exec", {"source": "open('ran', 'w')"}),
        ("no.such.module:X", {}),
        (":X", {}),
        (f"{Role.__module__}:Role.open.__globals__", {}),
        (ROLE, {"unknown": 1}),
        (ROLE, {"belongings": ("tensor", "no array")}),
        (ROLE, ["belongings"]),
        (f"{__name__}:Held", {"number": 1}),
        (f"{__name__}:Colour", "GREEN"),
        ("os:system", "x"),
    ],
    ids=lambda message: str(message)[:60],
)
def test_forged_descriptions_run_nothing_and_are_one_error(message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match=r"descri|no class|dataclass|cannot be imported"):
        restore(message)
    assert not list(tmp_path.iterdir())


def test_a_module_that_ends_the_process_is_one_error(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "forged_ends.py").write_text("class X: ...\nraise SystemExit(3)\n")
    with pytest.raises(ValueError, match="cannot be imported"):
        restore(("forged_ends:X", {}))
