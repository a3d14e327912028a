"""Jobs of a sweep that are not composed one by one are what Hydra composes."""

import itertools

from hydra import compose, initialize_config_dir
from omegaconf import OmegaConf

from fedpriv.settings import compose as composer
from fedpriv.settings.compose import CommandLine, compose_jobs, each_job
from fedpriv.settings.words import conf_dir


def test_a_sweeps_jobs_are_what_hydra_composes():
    swept = {
        "algo": ["minibatch_sgd", "uldp_avg"],
        "algo.clip": ["1", "2.5"],
        "model.hidden": ["[5]", "[7,3]"],
        "accountant.budget": ["null", "3"],
    }
    fixed = ["model=mlp", "rounds=5", "+preset.more=1"]
    line = CommandLine.parse(
        ["-m", *fixed, *(f"{key}={','.join(values)}" for key, values in swept.items())]
    )
    jobs = compose_jobs(line, conf_dir())
    several = [[f"{key}={value}" for value in values] for key, values in swept.items()]
    with initialize_config_dir(str(conf_dir()), version_base="1.3"):
        for words, job in zip(itertools.product(*several), jobs, strict=True):
            one = compose("config", [*fixed, *words], return_hydra_config=True)
            assert OmegaConf.to_yaml(job) == OmegaConf.to_yaml(one)


def test_given_jobs_are_composed_once_for_each_choice_of_files(monkeypatch):
    """Also those whose files come from an experiment, and that set keys which are null in the
    files."""
    asked = []

    def counting(*args, **how):
        asked.append(how.get("overrides") or args[1])
        return compose(*args, **how)

    monkeypatch.setattr(composer, "compose", counting)
    given = [
        ["experiment=lowy/fig8", "algo=spider", f"algo.records_per_user={k}", f"seed={seed}"]
        for k in ("2", "null", "3")
        for seed in (0, 1)
    ]
    line = CommandLine(["hydra.sweep.dir=somewhere"], True, None)
    found = [
        (job.algo.records_per_user, job.seed, job.rounds)
        for job in each_job(line, conf_dir(), given)
    ]
    assert found == [(k, seed, 25) for k in (2, None, 3) for seed in (0, 1)]
    assert len(asked) == 1


def test_a_later_job_of_the_process_is_what_hydra_composes(tmp_path, monkeypatch):
    """Words of the lines before leave no trace, and the folder is that of today."""
    lines = (
        ["algo=fedavg", "algo.local_epochs=3", "hydra.run.dir=out", "rounds=2"],
        ["algo=fedavg", "preset.n_users=8", "+preset.more=1", "hydra.run.dir=out"],
        ["algo=fedavg", "model=mlp", "model.hidden=[7,3]", "accountant.target=null"],
        ["algo=fedavg"],
        ["seed=3"],
    )
    for folder in (tmp_path, tmp_path.parent):
        monkeypatch.chdir(folder)
        for words in lines:
            [found] = compose_jobs(CommandLine.parse(words), conf_dir())
            with initialize_config_dir(str(conf_dir()), version_base="1.3"):
                expected = compose("config", words, return_hydra_config=True)
            assert OmegaConf.to_yaml(found) == OmegaConf.to_yaml(expected)
