"""A package outside this repository adds a method, a data set, a model and an allocator, and is
held to the rules."""

import importlib
import sys
from pathlib import Path

import pandas as pd
import pytest

from fedpriv.cli import main
from fedpriv.runtime.identity import digest_code, source_digest
from fedpriv.testing import ConformanceError, check_algorithm, experiment

METHOD = '''
"""Signs of the silos' mean changes, clipped by user: a method of its own."""
from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from fedpriv.accountants.events import ADD_REMOVE
from fedpriv.algorithms.base import Algorithm
from fedpriv.certificates.noise import OwnNoise, SumNoise
from fedpriv.certificates.request import Request, Target
from fedpriv.rounds.contributors import Users
from fedpriv.training.contributions import Contributions
from fedpriv.training.description import Recipe
from fedpriv.rounds.contributors import Weighting


@dataclass(frozen=True)
class Mine(Algorithm):
    clip: float = 0.5
    noise_multiplier: float = 4.0
    step: float = 0.05

    @property
    def label(self):
        return "MINE"

    @property
    def contributors(self):
        return Users()

    def targets(self, federation):
        return (Target("user", ADD_REMOVE),)

    noise = SumNoise()

    def requests(self, round, plan):
        return (Request(self.noise, recipe=Recipe(3, 1000, 0.3)),)

    def global_update(self, state, query, total, plan):
        return state.with_params(state.params + self.step * np.sign(total.vector))


@dataclass(frozen=True)
class Silent(Mine):
    """Claims noise, and adds none."""

    noise = OwnNoise()

    def local_update(self, silo, query, down):
        job = super().local_update(silo, query, down)
        bound = query.mechanism.bound
        return job.map(lambda block: replace(block, vectors=bound(block.vectors)[0]))


@dataclass(frozen=True)
class Twice(Weighting):
    def weights(self, counts):
        return np.full(counts.shape, 2 / len(counts))


@dataclass(frozen=True)
class Heavy(Mine):
    """Weights that add up to two."""

    @property
    def contributors(self):
        return Users(Twice())
'''
REST = '''
from dataclasses import dataclass

import numpy as np

from fedpriv.data.allocate import Allocator
from fedpriv.data.allocate import Allocation
from fedpriv.data.base import Corpus, DataSet, Records
from fedpriv.models import Model
from fedpriv.models.tasks import Classification


@dataclass(frozen=True)
class Rings(DataSet):
    """Two rings in the plane."""

    n: int = 300

    shape = (2,)
    outputs = 2

    @property
    def task(self):
        return Classification()

    def load(self, streams):
        rng = streams.generator("rings")
        y = rng.integers(0, 2, self.n)
        angle, radius = rng.uniform(0, 2 * np.pi, self.n), 1 + y + 0.1 * rng.normal(size=self.n)
        x = np.stack([radius * np.cos(angle), radius * np.sin(angle)], axis=1).astype(np.float32)
        cut = self.n * 4 // 5
        return Corpus(Records(x[:cut], y[:cut]), Records(x[cut:], y[cut:]))


@dataclass(frozen=True)
class Cosines(Model):
    """Random features and a linear layer."""

    width: int = 16

    def build(self, shape, outputs):
        from torch import nn

        hidden = nn.Linear(shape[0], self.width)
        return nn.Sequential(hidden, nn.Tanh(), nn.Linear(self.width, outputs))

    def size(self, shape, outputs):
        return (shape[0] + 1) * self.width + (self.width + 1) * outputs


@dataclass(frozen=True)
class WrongSize(Cosines):
    """Does not know how large it is."""

    def size(self, shape, outputs):
        return super().size(shape, outputs) // 4


@dataclass(frozen=True)
class Stripes(Allocator):
    """Record i belongs to user i mod n_users and to silo i mod n_silos."""

    def allocate(self, records, data, streams):
        at = np.arange(len(records))
        trains = np.ones(len(records), dtype=bool)
        return Allocation(at % self.n_users, at % self.n_silos, trains, self.n_users, self.n_silos)
'''
CONF = {
    "algo/mine.yaml": "_target_: outside.method.Mine\nclip: 0.5\nnoise_multiplier: 4.0\nstep: "
    "0.05\n",
    "model/cosines.yaml": "_target_: outside.rest.Cosines\nwidth: 16\n",
    "allocator/stripes.yaml": """_target_: outside.rest.Stripes
n_users: ${preset.n_users}
n_silos: ${preset.n_silos}
""",
    "data/rings.yaml": """# @package _global_
defaults:
  - override /model: cosines
  - override /allocator: stripes

rounds: 12
preset: {n_users: 10, n_silos: 4}
data:
  _target_: outside.rest.Rings
  root: null
  n: 600
""",
}


@pytest.fixture(scope="module")
def outside(tmp_path_factory):
    """The package's folder, which is on the path, and its modules."""
    folder = tmp_path_factory.mktemp("outside")
    (folder / "outside").mkdir()
    for name, text in {"__init__": "", "method": METHOD, "rest": REST}.items():
        (folder / "outside" / f"{name}.py").write_text(text)
    for name, text in CONF.items():
        path = folder / "conf" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    sys.path.insert(0, str(folder))
    yield folder, importlib.import_module("outside.method"), importlib.import_module("outside.rest")
    sys.path.remove(str(folder))
    for name in [name for name in sys.modules if name.partition(".")[0] == "outside"]:
        del sys.modules[name]


def test_a_command_trains_with_all_four(outside, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["fedpriv"])
    words = ["data=rings", "algo=mine", "algo.noise_multiplier=0.1", "hydra.run.dir=run"]
    main(["--config-dir", str(outside[0] / "conf"), *words])
    metrics, epsilon = (pd.read_csv(Path("run") / name) for name in ("metrics.csv", "epsilon.csv"))
    assert list(metrics["round"]) == list(range(13))
    assert metrics["loss"].iloc[-1] < metrics["loss"].iloc[0]
    assert set(epsilon["observer"]) == {"released model", "server", "silo"}
    assert epsilon["certified"].gt(0).all()


def test_an_honest_method_passes(outside):
    checked = check_algorithm(outside[1].Mine())
    assert "update: user, add/remove" in checked.checked
    assert checked.declared == ()


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("Silent", "noise: measured 0, the certificate assumes 1"),
        ("Heavy", "weights of a unit add up to 2"),
    ],
)
def test_a_method_that_promises_too_much_fails(outside, name, why):
    with pytest.raises(ConformanceError, match=why):
        check_algorithm(getattr(outside[1], name)())


def test_the_identity_of_a_run_follows_the_source_of_its_authors_package(outside):
    exp = experiment(algo=outside[1].Mine())
    before = digest_code(exp)
    assert before == digest_code(exp) != digest_code(experiment("algo=uldp_avg"))
    with open(outside[0] / "outside" / "method.py", "a") as source:
        source.write("\n# edited\n")
    source_digest.cache_clear()
    assert digest_code(exp) != before


def test_a_model_that_is_wrong_about_its_size_is_refused(outside):
    """The size enters the rounding's sensitivity."""
    from fedpriv.errors import ConfigError
    from fedpriv.runtime import prepare

    other = "~model.bias", "~model.zero"
    exp = experiment("model._target_=outside.rest.WrongSize", *other, "+model.width=8")
    with pytest.raises(
        ConfigError,
        match=r"model=WrongSize: size\(\) says 66 parameters, and build\(\) creates 266",
    ):
        prepare(exp)
