"""Runs of every algorithm under every aggregation that takes it end in some round, and go on to the
same bits."""

import random
from pathlib import Path

import pytest
from command import run
from interrupted import Death, watched

from fedpriv.errors import FedprivError
from fedpriv.settings.compose import CommandLine, compose_jobs, without_hydra
from fedpriv.settings.experiment import build
from fedpriv.settings.words import conf_dir

WORDS = (
    "rounds=4",
    "preset.n_users=4",
    "preset.n_silos=4",
    "preset.local_epochs=1",
    "preset.silo_epochs=1",
    "accountant=rdp",
    "allocator=uniform",
)
MORE = {
    "private_weighting": (
        "aggregation.key_bits=512",
        "aggregation.n_max=4000",
        "aggregation.count_cap=500",
    )
}
FILES = ("metrics.csv", "epsilon.csv", "config.yaml", "model.safetensors")
SHORT = (
    ("uldp_avg_w", "plain"),
    ("scaffold", "masked"),
    ("spider", "plain"),
    ("cdp_fedavg", "secagg"),
)


def names(group):
    return sorted(path.stem for path in (conf_dir() / group).glob("*.yaml"))


def words(algo, aggregation):
    return (*WORDS, f"algo={algo}", f"aggregation={aggregation}", *MORE.get(aggregation, ()))


def possible(algo, aggregation):
    """Whether the aggregation takes the algorithm."""
    try:
        for config in compose_jobs(CommandLine.parse(list(words(algo, aggregation))), conf_dir()):
            build(without_hydra(config))
    except FedprivError:
        return False
    return True


def dies_and_goes_on(algo, aggregation, folder):
    """Check a run that dies after some of its sums against one that does not."""
    sums = []
    with watched(lambda number: None, sums.append):
        done = run(*words(algo, aggregation), f"hydra.run.dir={folder / 'whole'}", cwd=folder)
    assert done.returncode == 0, (algo, aggregation, done.stderr)
    last, seen = random.Random(f"{algo} {aggregation}").randint(1, len(sums)), []

    def after(number):
        seen.append(number)
        if len(seen) == last:
            raise Death

    with watched(lambda number: None, after), pytest.raises(Death):
        run(*words(algo, aggregation), f"hydra.run.dir={folder / 'cut'}", cwd=folder)
    done = run(f"resume={folder / 'cut'}", cwd=folder)
    assert done.returncode == 0, (algo, aggregation, done.stderr)
    for name in FILES:
        assert (folder / "cut" / name).read_bytes() == (folder / "whole" / name).read_bytes(), (
            algo,
            aggregation,
            name,
        )


@pytest.mark.parametrize(("algo", "aggregation"), SHORT)
def test_a_run_that_died_ends_with_the_same_bits(algo, aggregation, tmp_path):
    dies_and_goes_on(algo, aggregation, tmp_path)


@pytest.mark.slow
def test_all_algorithms_under_all_aggregations(tmp_path):
    pairs = [(algo, aggregation) for algo in names("algo") for aggregation in names("aggregation")]
    pairs = [pair for pair in pairs if possible(*pair)]
    assert len(pairs) >= 50
    for algo, aggregation in pairs:
        folder = Path(tmp_path / f"{algo}_{aggregation}")
        folder.mkdir()
        dies_and_goes_on(algo, aggregation, folder)
