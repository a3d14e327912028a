"""A key of the command line without effect is refused, with the key that makes it so."""

import pytest
from command import run

from fedpriv.errors import ConfigError
from fedpriv.settings.compose import one_experiment
from fedpriv.testing import experiment


@pytest.mark.parametrize("method", ["cdp_fedavg", "spider", "prox_svrg", "dp_erm", "local_sgd"])
def test_noise_beside_a_calibration_is_refused(method, tmp_path):
    words = ["-m", f"algo={method}", "algo.noise_multiplier=0.5,2,8"]
    done = run(*words, f"hydra.sweep.dir={tmp_path / 'sweep'}", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        "fedpriv: algo.noise_multiplier=0.5: has no effect with algo.calibration=certified\n"
    )
    assert not (tmp_path / "sweep").exists()


@pytest.mark.parametrize(
    ("words", "key", "reason"),
    [
        ("algo=spider mechanism.noise_multiplier=2", "mechanism.noise_multiplier", "calibration"),
        ("algo=spider ++algo.noise_multiplier=2", "algo.noise_multiplier", "calibration=certified"),
        ("algo=spider algo.difference_noise=3", "algo.difference_noise", "calibration=certified"),
        ("algo=spider algo.variant=alternate algo.phase=3", "algo.phase", "variant=alternate"),
        ("algo=spider algo.prox_size=2", "algo.prox_size", "algo.prox=none"),
        ("algo=spider algo.prox=l1 algo.prox_group=2", "algo.prox_group", "algo.prox=l1"),
        ("algo=spider algo.calibration=given algo.epsilon=2", "algo.epsilon", "calibration=given"),
        ("algo=spider algo.phase=1 algo.batch_size=3", "algo.batch_size", "algo.phase=1"),
        ("algo=prox_pl_svrg algo.released=last algo.epochs=3", "algo.epochs", "released=last"),
        ("algo=cdp_fedavg algo.participation=uniform", "algo.participation", "algo.cohort=None"),
        (
            "algo=cdp_fedavg algo.calibration=paper algo.observer=silo",
            "algo.observer",
            "algo.calibration=paper",
        ),
        ("algo=fedopt algo.rule=momentum algo.adaptivity=1", "algo.adaptivity", "rule=momentum"),
        ("algo=local_only algo.global_lr=2", "algo.global_lr", "algo=local_only"),
        ("algo=uldp_avg mechanism.clip=2 algo.clip=1", "algo.clip", "mechanism.clip=2"),
        ("algo=uldp_avg mechanism=none algo.clip=1", "algo.clip", "mechanism=none"),
        (
            "algo=uldp_avg mechanism.noise_multiplier=2 algo.noise_multiplier=1",
            "algo.noise_multiplier",
            "mechanism.noise_multiplier=2",
        ),
    ],
)
def test_an_idle_key_is_named_with_its_reason(words, key, reason):
    with pytest.raises(ConfigError) as error:
        one_experiment(*words.split())
    assert str(error.value).startswith(f"{key}=")
    assert "has no effect with" in str(error.value)
    assert reason in str(error.value)


@pytest.mark.parametrize(
    "words",
    [
        "algo=spider algo.calibration=given algo.noise_multiplier=2 algo.difference_noise=3",
        "algo=spider algo.variant=alternate algo.batch_size=3 algo.anchor_batch_size=4",
        "algo=spider algo.prox=group_l1 algo.prox_size=2 algo.prox_group=2 algo.phase=2",
        "algo=cdp_fedavg algo.cohort=2 algo.participation=uniform algo.epsilon=3",
        "algo=local_sgd algo.observer=silo algo.calibration=given algo.noise_multiplier=3",
        "algo=fedopt algo.rule=adam algo.second_moment=0.5 algo.adaptivity=1",
        "algo=uldp_avg mechanism.clip=2 mechanism.noise_multiplier=3",
        "algo=uldp_avg mechanism=none",
        "algo=prox_pl_svrg algo.epochs=3",
        "algo=spider algo.calibration=given algo.noise_multiplier=2 algo.epsilon=10",  # as its file
        "algo=dp_sgd algo.noise_multiplier=0 algo.participation=balanced",  # as its parent's file
    ],
)
def test_keys_with_an_effect_are_accepted(words):
    one_experiment(*words.split())


def test_with_alternate_the_batch_size_is_that_of_gradients_too():
    words = ("algo=spider", "algo.variant=alternate")
    algo = one_experiment(*words, "algo.batch_size=7").algo
    assert [algo.size(name, 100) for name in ("gradient", "difference")] == [7, 7]
    both = one_experiment(*words, "algo.batch_size=7", "algo.anchor_batch_size=9").algo
    assert [both.size(name, 100) for name in ("gradient", "difference")] == [9, 7]


def test_a_key_that_a_preset_lacks_is_named_with_what_to_do():
    text = r"clip=\$\{preset.nothing\}: preset.nothing does not exist; set mechanism.clip, or"
    with pytest.raises(ConfigError, match=text):
        experiment("algo=uldp_avg", "algo.clip=${preset.nothing}")
