"""Private evaluation: what a test person moves, what it costs, and what the numbers are worth."""

from __future__ import annotations

import csv
import math
import shutil
from dataclasses import replace

import numpy as np
import pytest
import torch
from dp_accounting.pld.privacy_loss_mechanism import GaussianPrivacyLoss
from public_schema import SCHEMA
from safetensors.numpy import load_file, save_file
from sklearn.metrics import log_loss, roc_auc_score

import fedpriv
from fedpriv.accountants.events import RELEASED_MODEL
from fedpriv.algorithms.evaluation import Calibration, Evaluation, Share
from fedpriv.errors import FedprivError
from fedpriv.mechanisms.gaussian import NORMAL
from fedpriv.projects.patients import csv_text
from fedpriv.runs.epsilon_forecast import EpsilonForecast
from fedpriv.runs.evaluate_command import RunEvaluation
from fedpriv.runtime import prepare

TABLE = ("data=table", "allocator=by_user", "allocator.n_silos=2", "data.outside=accept")
SMALL = ("rounds=2", "algo.local_epochs=1", "accountant=rdp", "references=false")


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    """A table, and the folder of a run on it."""
    folder = tmp_path_factory.mktemp("study")
    (folder / "visits.csv").write_text(csv_text(patients=60))
    (folder / "schema.yaml").write_text(SCHEMA)
    paths = (f"data.path={folder / 'visits.csv'}", f"data.schema={folder / 'schema.yaml'}")
    fedpriv.run(*TABLE, *SMALL, *paths, folder=folder / "run")
    return folder


@pytest.fixture(scope="module")
def cancer(tmp_path_factory):
    """The folder of a run on embedded records."""
    folder = tmp_path_factory.mktemp("cancer") / "run"
    fedpriv.run("data=breast_cancer", *SMALL, "preset.n_users=8", folder=folder)
    return folder


def asked(run, *words):
    """An evaluation without noise, unless words say otherwise."""
    noise = () if any("target" in word for word in words) else ("algo.noise_multiplier=0",)
    return RunEvaluation.parse([str(run), "randomness=simulation", *noise, *words]).experiment


def released(exp):
    """The sums that an evaluation gives to the noise, which is zero here, and its table."""
    with prepare(exp) as run:
        state = run.run_round(run.queries(1), run.state).state
        table = exp.algo.table(state, run.plan)
    values = {(row["statistic"], row["of"]): row["value"] for row in table}
    assert all(row["low"] <= row["value"] <= row["high"] for row in table)
    return state.params, values


def by_hand(chances, y, owner, bins):
    """The same numbers by other code, users alike."""
    _, place, times = np.unique(owner, return_inverse=True, return_counts=True)
    weight = 1 / times[place]
    binned = np.minimum((chances * bins).astype(int), bins - 1)
    yield ("count", ""), len(times)
    yield ("accuracy", ""), np.average((chances > 0.5) == y, weights=weight)
    yield ("loss", ""), log_loss(y, chances, sample_weight=weight, labels=[0, 1])
    yield ("auc", f"{bins} bins"), roc_auc_score(y, binned, sample_weight=weight)
    edges = np.linspace(0, 1, bins + 1)
    for number in np.unique(binned):
        here = binned == number
        name = f"{edges[number]:g} to {edges[number + 1]:g}"
        yield ("calibration", name), np.average(y[here], weights=weight[here])


@pytest.mark.parametrize("name", ["table", "cancer"])
def test_without_noise_the_numbers_are_those_of_an_exact_evaluation(name, request):
    folder = request.getfixturevalue(name)
    run = folder / "run" if name == "table" else folder
    exp = asked(run, "bins=20", "most_loss=50")
    _, values = released(exp)
    corpus = exp.data.whole.load(exp.streams)
    test = corpus.test if name == "cancer" else corpus.owned_test
    owner = np.arange(len(test)) if name == "cancer" else test.user
    with prepare(exp) as ready:
        chances = ready.model(torch.from_numpy(test.x)).double().softmax(1)[:, 1].detach().numpy()
    for key, value in by_hand(chances, test.y, owner, 20):
        assert values[key] == pytest.approx(value, rel=1e-6), key


def test_a_test_person_moves_the_sums_by_at_most_the_bound(table):
    lines = (table / "visits.csv").read_text().splitlines()
    rows = list(csv.reader(lines))
    place = rows[0].index("patient")
    exp = asked(table / "run")
    corpus = exp.data.load(exp.streams)
    tested = {corpus.train.user_names[user] for user in corpus.train.user}
    whole, _ = released(exp)
    others = sorted({row[place] for row in rows[1:]} - tested)
    moved = {}
    for person in [*sorted(tested)[:10], *others[:3]]:
        kept = [line for line, row in zip(lines, rows) if row[place] != person]
        (table / "less.csv").write_text("\n".join(kept) + "\n")
        data = replace(exp.data.whole, path=str(table / "less.csv"))
        less, _ = released(replace(exp, data=data))
        moved[person] = float(np.linalg.norm(whole - less))
    assert max(moved.values()) <= 1 + 1e-12
    assert max(moved.values()) > 0.8  # a person is there, and is not cut
    assert {moved[person] for person in others[:3]} == {0.0}  # not a bit of what others have


def test_epsilons_are_those_of_one_gaussian(cancer):
    exp = asked(cancer, "accountant=pld")
    rng = np.random.default_rng(5)
    for noise in rng.uniform(0.6, 12, size=5).round(3).tolist():
        algo = replace(exp.algo, noise_multiplier=noise)
        own = replace(exp, algo=algo, mechanism=exp.mechanism.with_noise(noise))
        rows = EpsilonForecast.of(own).rows
        [epsilon] = {row.certified for row in rows if row.observer == RELEASED_MODEL}
        assert {row.unit for row in rows} == {"user"}
        delta = GaussianPrivacyLoss(noise).get_delta_for_epsilon(epsilon)  # closed form
        assert 1e-5 * (1 - 5e-3) <= delta <= 1e-5 * (1 + 1e-6)


def test_intervals_cover():
    rng = np.random.default_rng(3)
    chances = rng.beta(2, 2, size=600)
    y = (rng.uniform(size=600) < chances).astype(int)
    x = np.minimum((chances * 5).astype(int), 4)
    right, loss = (chances > 0.5) == y, np.minimum(-np.log(np.where(y, chances, 1 - chances)), 3)
    parts = [
        (Share("accuracy"), right.astype(float), [right.mean()]),
        (Share("loss", 3.0), loss / 3, [loss.mean()]),
        (
            Calibration(5, ranks=True),
            2 * x + y,
            [*(y[x == one].mean() for one in range(5)), roc_auc_score(y, x)],
        ),
    ]
    runs, deviation = 200, 7.0
    least, most = 0.95 - 3 * math.sqrt(0.95 * 0.05 / runs), 0.995
    for part, values, true in parts:
        sums = part.vectors(values).sum(axis=0)
        exact = [one.value for one in part.estimates(sums, 0.0)]
        assert exact == pytest.approx(true, rel=1e-12)
        noisy = sums + rng.normal(scale=deviation, size=(runs, len(sums)))
        found = np.array(
            [[one[2:] for one in part.estimates(row, NORMAL * deviation)] for row in noisy]
        )
        covered = (found[:, :, 1] <= true) & (np.array(true) <= found[:, :, 2])
        assert (covered.mean(axis=0) >= least).all()
        assert (covered.mean(axis=0) <= most).all()  # nor are intervals wider than they say
        assert (found[:, :, 2] - found[:, :, 1]).mean() < 0.5


NUMBERS = [  # of two coordinates of three parts, unless words say otherwise: Laplace noise
    (("mechanism=gaussian",), 1.959963984540054 * 3.73067 * math.sqrt(2 * 3)),
    ((), math.log(20) * 0.99999 * math.sqrt(2) * 3),
]


@pytest.mark.parametrize(("words", "reach"), NUMBERS)
def test_the_released_number_of_persons_has_the_noise_that_is_charged(words, reach, cancer):
    exp = asked(cancer, "target=1", *words)
    inside = []
    for seed in range(12):
        own = replace(exp, options=replace(exp.options, seed=seed))
        with prepare(own) as run:
            row = own.algo.table(run.run_round(run.queries(1), run.state).state, run.plan)[0]
        inside.append(row["low"] <= 114 <= row["high"])
        assert row["high"] - row["low"] == pytest.approx(2 * reach, rel=1e-5)
    assert sum(inside) >= 9  # of 11.4 expected


def with_weights(folder, value):
    """Every weight of the released model becomes this."""
    path = folder / "model.safetensors"
    save_file({name: np.full_like(one, value) for name, one in load_file(path).items()}, path)
    return folder


def test_a_record_without_a_finite_output_is_a_wrong_one_of_the_largest_loss(cancer, tmp_path):
    """Nobody improves a model by leaving its worst records out."""
    folder = with_weights(shutil.copytree(cancer, tmp_path / "run"), np.finfo(np.float32).max)
    _, values = released(asked(folder))
    assert values["count", ""] == pytest.approx(114)
    assert values["accuracy", ""] == 0
    assert values["loss", ""] == 3.0


def test_weights_that_are_not_finite_are_refused(cancer, tmp_path):
    folder = with_weights(shutil.copytree(cancer, tmp_path / "run"), np.nan)
    with pytest.raises(FedprivError, match=r"model.safetensors: a weight is not finite"):
        released(asked(folder))


@pytest.mark.parametrize("bins", [0, 2000])
def test_bins_are_bounded(bins):
    with pytest.raises(FedprivError, match=f"algo.bins={bins}"):
        Evaluation(clip=1, noise_multiplier=1, weights="x", bins=bins)
