"""Every experiment file: all its jobs are composed and checked, its last one runs two tiny rounds,
and so does one with each choice of a paper's files, so that none rots."""

import json
from pathlib import Path

import pytest

from fedpriv.runs.loop import train
from fedpriv.settings.compose import CommandLine, compose_jobs, without_hydra
from fedpriv.settings.experiment import build
from fedpriv.settings.words import conf_dir

CONF = Path(__file__).resolve().parents[2] / "conf" / "experiment"
FILES = sorted(CONF.rglob("*.yaml"))
SMALLER = {
    "uldp_fl": ["preset.local_epochs=1", "preset.silo_epochs=1", "allocator.n_users=10"],
    "baselines": ["algo.cycle=2"],
    "budgets": ["preset.local_epochs=1"],
    "hu": ["algo.epsilon=1"],
    "huang": ["algo.epsilon=1", "allocator.n_silos=20", "algo.local_steps=1"],
    "lowy": ["algo.epsilon=1", "preset.local_lr=0.1", "preset.silo_clip=1"],
    "secured_fl": ["preset.n_users=12", "preset.n_silos=9"],
    "study": ["preset.local_epochs=1", "preset.silo_epochs=1", "allocator.n_users=10"],
}
"""What makes a paper's experiments smaller still."""
LARGE = ("fig3_femnist", "fig3_cifar10", "fig4", "fig5")
"""Of SecureD-FL: with networks of up to eleven million parameters, of which every peer sends
copies."""


TRAINED = set()
"""Papers, each with a word of a job that an earlier test of this process has trained."""


def one_of_each_choice(jobs, paper):
    """Jobs with words that are no numbers and that no job of the paper had, and the last job."""
    *first, last = jobs
    chosen = []
    for config in first:
        words = (w for w in config.hydra.overrides.task if not is_number(w.partition("=")[2]))
        new = {(paper, w) for w in words if not w.startswith("experiment=")} - TRAINED
        if new:
            chosen.append(config)
            TRAINED.update(new)
    return [*chosen, last]


def is_number(text):
    try:
        float(text)
    except ValueError:
        return False
    return True


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_runs_two_tiny_rounds(file, tmp_path, small_root):
    words = [
        f"experiment={file.relative_to(CONF).with_suffix('')}",
        "rounds=2",
        "seed=0",
        f"data.root={small_root}",
    ]
    words += SMALLER.get(file.parent.name, [])
    if file.parent.name == "budgets" and file.stem == "heart_disease":
        words.append("preset.n_users=93")  # of the generated file
    if file.parent.name == "secured_fl" and file.stem in LARGE:
        words.append("model=linear")
    if "batch_size:" in file.read_text():  # meant for real records
        words.append("algo.batch_size=4")
    if "allocator.n_silos:" in file.read_text():
        words.append("allocator.n_silos=3,5")
    if "private_weighting" in file.read_text():
        words += ["aggregation.key_bits=512", "aggregation.n_max=120", "aggregation.count_cap=20"]
    jobs = compose_jobs(CommandLine.parse(["-m", *words]), conf_dir())
    for config in jobs:
        build(without_hydra(config))
    for number, config in enumerate(one_of_each_choice(jobs, file.parent.name)):
        train(build(without_hydra(config)), "", tmp_path / str(number))
        assert json.loads((tmp_path / str(number) / "status.json").read_text())["state"] == "done"
