"""What private weighting serves, what it refuses in one line, and what it certifies against
whom.
"""

import json

import command
import numpy as np
import pandas as pd
import pytest
from dp_accounting import GaussianDpEvent, NonPrivateDpEvent, PoissonSampledDpEvent
from private_sums import random_world, small

from fedpriv.aggregation.planner import Planner
from fedpriv.algorithms.uldp import UldpAvg
from fedpriv.errors import ConfigError
from fedpriv.mechanisms.discrete_gaussian import DiscreteGaussian
from fedpriv.mechanisms.gaussian import Gaussian
from fedpriv.mechanisms.none import NoMechanism
from fedpriv.rounds.plan import Federation
from fedpriv.training.optimizers import Sgd
from fedpriv.util.streams import Streams

FEDERATION = Federation(100, 5, 1000)


def algorithm(**changes):
    settings = {
        "clip": 1.0,
        "noise_multiplier": 5.0,
        "user_rate": 1.0,
        "weighting": "records",
        "global_lr": 10.0,
    }
    return UldpAvg(**(settings | {"local_epochs": 1, "batch_size": 4, "local_lr": 0.1} | changes))


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        ({"key_bits": 100}, r"aggregation\.key_bits=100"),
        ({"n_max": 0}, r"aggregation\.n_max=0"),
        ({"n_max": 4}, r"aggregation\.n_max=4: 5 or more"),
        ({"n_max": 1000}, r"aggregation\.n_max=1000: one slot needs .* take a longer key"),
        ({"precision": 80}, r"aggregation\.precision=80"),
        ({"precision": 1}, r"aggregation\.precision=1: too few digits"),
        ({"count_cap": 0}, r"aggregation\.count_cap=0"),
        ({"count_cap": 9, "n_max": 40}, r"aggregation\.count_cap=9: null, or 1 to 8"),
        ({"variant": "fast"}, r"aggregation\.variant=fast: sound or paper"),
        ({"oblivious": True, "user_rate": 0.123}, r"algo\.user_rate=0\.123"),
        ({"weighting": "uniform"}, r"aggregation=private_weighting: .*algo\.weighting=records"),
    ],
)
def test_impossible_settings_are_refused_in_one_line(wrong, text):
    algo = {key: wrong.pop(key) for key in ("user_rate", "weighting") if key in wrong}
    with pytest.raises(ConfigError, match=text) as error:
        check(small(**wrong), algorithm(**algo), Gaussian(1.0, 5.0))
    assert "\n" not in str(error.value)


def check(aggregation, algo, mechanism):
    aggregation.adapt(algo)
    make_plan(aggregation, algo, mechanism)


def make_plan(aggregation, algo, mechanism):
    return Planner(algo, aggregation, mechanism, Sgd(), Streams(0)).draft(FEDERATION)


def events(aggregation, algo, mechanism=Gaussian(1.0, 5.0)):  # noqa: B008
    [query] = algo.queries(1, make_plan(aggregation, algo, mechanism))
    return {event.observer: event for event in query.events}


def test_it_needs_clipping():
    with pytest.raises(ConfigError, match="mechanism=none"):
        check(small(), algorithm(), NoMechanism())


def test_discrete_noise_is_drawn_on_the_grid_and_arrives_whole():
    world, mechanism = random_world(streams=Streams(9)).ready(), DiscreteGaussian(1.0, 5.0)
    check(world.aggregation, algorithm(), mechanism)
    for s, name in enumerate(world.silos):
        rng = world.streams.secret("noise", 1, name)
        world.noise[s] = mechanism.noise_share(5, len(world.silos), rng, encoding=world.encoding)
    steps = world.noise / world.encoding.unit
    assert (steps == np.rint(steps)).all()
    assert (np.abs(steps) > 1).all()
    total = world.run().vector
    assert total.tolist() == world.encoding.layout.decode(world.exact()).tolist()
    most = world.encoding.rounding
    np.testing.assert_allclose(total, world.weighted(), rtol=1e-12, atol=most)


@pytest.mark.parametrize("mechanism", [Gaussian(1.0, 5.0), DiscreteGaussian(1.0, 5.0)])
def test_digits_beyond_what_integer_noise_can_have_are_refused(mechanism):
    check(small(key_bits=2048, precision=47), algorithm(), mechanism)
    with pytest.raises(ConfigError, match=r"aggregation\.precision=52: too many digits"):
        check(small(key_bits=2048, precision=52), algorithm(), mechanism)


@pytest.mark.parametrize("mechanism", [Gaussian(1.0, 5.0), DiscreteGaussian(1.0, 5.0)])
def test_events_charge_a_grid_step_in_every_coordinate(mechanism):
    seen = events(small(key_bits=2048), algorithm(), mechanism)
    moved = 1 + np.sqrt(FEDERATION.n_parameters) * 2.0**-20
    plain = mechanism.event(sensitivity=moved)
    assert seen["released model"].certified == seen["server"].certified == plain
    assert seen["silo"].certified == mechanism.event(sensitivity=moved, shares=4 / 5)
    assert any("colludes with no silo" in text for text in seen["server"].assumptions)


def test_sub_sampling_amplifies_for_who_does_not_see_the_sample():
    algo = algorithm(user_rate=0.1)
    known, hidden = (
        events(small(key_bits=2048, oblivious=oblivious), algo) for oblivious in (False, True)
    )
    for seen in (known, hidden):
        assert isinstance(seen["silo"].certified, PoissonSampledDpEvent)
        assert isinstance(seen["released model"].certified, PoissonSampledDpEvent)
    assert isinstance(known["server"].certified, GaussianDpEvent)
    assert known["server"].claimed is None
    assert hidden["server"].certified == hidden["released model"].certified
    assert hidden["server"].claimed == PoissonSampledDpEvent(0.1, GaussianDpEvent(5.0))


def test_flaws_certify_nothing_and_say_why():
    paper = events(small(variant="paper", key_bits=2048), algorithm())
    short = events(small(key_bits=1024), algorithm())
    assert all(event.certified == NonPrivateDpEvent() for event in paper.values())
    assert all(
        any(text.startswith("FAILS: aggregation.variant") for text in e.assumptions)
        for e in paper.values()
    )
    assert short["silo"].certified == NonPrivateDpEvent()
    assert short["server"].certified != NonPrivateDpEvent()


def test_the_estimate_tells_sizes():
    world = random_world(size=50)
    (first,) = world.aggregation.estimate(world.query(), Federation(4, 3, 50))
    layout = world.encoding.layout
    assert f"{layout.slots} slots of {layout.width} bits" in first
    hidden = random_world(size=50, oblivious=True)
    _, second = hidden.aggregation.estimate(hidden.query(rate=0.3), Federation(4, 3, 50))
    assert "encrypts 40 numbers" in second


# -- what whole runs leave in their folders, beside the same runs in the clear ---------------------


PRIVATE = ["aggregation=private_weighting", "aggregation.key_bits=512", "aggregation.n_max=150"]


def run(folder, *words):
    return command.run(*words, f"hydra.run.dir={folder}", cwd=folder.parent)


def metrics(folder, *words):
    done = run(folder, "algo.weighting=records", *words)
    assert done.returncode == 0, done.stderr
    return pd.read_csv(folder / "metrics.csv"), done


def columns_alike(one, other):
    for name in ("loss", "accuracy", "c_index", "update_norm"):
        if name in one:
            np.testing.assert_allclose(one[name], other[name], rtol=1e-4, err_msg=name)


def certified(folder):
    rows = pd.read_csv(folder / "epsilon.csv")
    return rows[rows["round"] == rows["round"].max()].groupby("observer")["certified"].min()


def test_a_run_agrees_with_plain_and_certifies_server_and_silos(tmp_path):
    common = ["rounds=1", "algo.local_epochs=1", "allocator.n_users=20"]
    plain, _ = metrics(tmp_path / "plain", *common)
    secret, done = metrics(tmp_path / "secret", *common, *PRIVATE, "aggregation.key_bits=2048")
    columns_alike(plain, secret)
    assert "2048-bit key" in done.stderr
    assert "MB" in done.stderr
    seen, unseen = certified(tmp_path / "plain"), certified(tmp_path / "secret")
    assert np.isinf(seen["server"])
    assert np.isfinite(unseen).all()
    np.testing.assert_allclose(unseen["server"], seen["released model"], rtol=1e-4)


def test_sampled_users_are_the_same_in_the_clear_and_hidden(tmp_path):
    common = ["rounds=1", "algo=uldp_sgd", "allocator.n_users=20", "algo.user_rate=0.5"]
    plain, _ = metrics(tmp_path / "plain", *common)
    secret, _ = metrics(tmp_path / "secret", *common, *PRIVATE)
    columns_alike(plain, secret)
    assert secret["contributions"][1] > plain["contributions"][1]  # silos train everybody
    metrics(tmp_path / "oblivious", *common, *PRIVATE, "aggregation.oblivious=true")
    known, hidden = certified(tmp_path / "secret"), certified(tmp_path / "oblivious")
    assert hidden["server"] == known["released model"] < known["server"]


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (
            [
                "algo=uldp_avg_w",
                "mechanism=discrete_gaussian",
                "aggregation.key_bits=2048",
                "aggregation.precision=52",
            ],
            "aggregation.precision=52: too many digits",
        ),
        (["algo=uldp_avg_w", "aggregation.n_max=6", "allocator.n_users=12"], "more than 2 records"),
        (["algo=fedavg"], "algo.weighting=records"),
    ],
)
def test_what_cannot_work_is_told_in_one_line(words, text, tmp_path):
    done = run(tmp_path / "out", *PRIVATE, "rounds=1", *words)
    assert done.returncode == 2, done.stderr
    assert done.stderr.count("\n") == 1
    assert text in done.stderr
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
@pytest.mark.parametrize("data", ["heart_disease", "tcga_brca"])
def test_real_records_give_the_metrics_of_plain(data, real_root, tmp_path):
    common = ["algo=uldp_avg", f"data={data}", f"data.root={real_root}", "rounds=3"]
    plain, _ = metrics(tmp_path / "plain", *common)
    secret, _ = metrics(tmp_path / "secret", *common, "aggregation=private_weighting")
    columns_alike(plain, secret)
    status = json.loads((tmp_path / "secret" / "status.json").read_text())
    assert status["aborted_rounds"] == {}
