"""Jobs of a sweep that are not composed one by one are what Hydra composes."""

import itertools

from hydra import compose, initialize_config_dir
from omegaconf import OmegaConf

from fedpriv.compose import CommandLine, compose_jobs
from fedpriv.help import conf_dir


def test_a_sweeps_jobs_are_what_hydra_composes():
    swept = {
        "algo": ["minibatch_sgd", "uldp_avg"],
        "algo.clip": ["1", "2.5"],
        "model.hidden": ["[5]", "[7,3]"],
        "accountant.budget": ["null", "3"],
    }
    fixed = ["model=mlp", "rounds=5", "+preset.more=1"]
    line = CommandLine.parse(["-m", *fixed, *(f"{key}={','.join(values)}" for key, values in swept.items())])
    jobs = compose_jobs(line, conf_dir())
    several = [[f"{key}={value}" for value in values] for key, values in swept.items()]
    with initialize_config_dir(str(conf_dir()), version_base="1.3"):
        for words, job in zip(itertools.product(*several), jobs, strict=True):
            one = compose("config", [*fixed, *words], return_hydra_config=True)
            assert OmegaConf.to_yaml(job) == OmegaConf.to_yaml(one)
