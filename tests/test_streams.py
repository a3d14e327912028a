import numpy as np
from scipy import stats

from fedpriv.streams import Streams, SystemGenerator


def test_same_name_same_stream_and_any_other_name_another():
    base = Streams(3).generator("noise", 5, "silo1").random(8)
    assert np.array_equal(base, Streams(3).generator("noise", 5, "silo1").random(8))
    others = [
        Streams(4).generator("noise", 5, "silo1"),
        Streams(3).generator("batches", 5, "silo1"),
        Streams(3).generator("noise", 6, "silo1"),
        Streams(3).generator("noise", 5, "silo2"),
        Streams(3).generator("noise", 51, "silo"),
    ]
    assert all(not np.array_equal(base, other.random(8)) for other in others)


def test_torch_seeds_fit_and_differ():
    seeds = {Streams(0).torch_seed("dropout", round, "silo0") for round in range(200)}
    assert len(seeds) == 200
    assert all(0 <= seed < 2**63 for seed in seeds)


def test_secret_draws_are_seeded_only_in_simulation():
    simulated = [Streams(1).secret("noise", 1, "silo0").standard_normal(4) for _ in range(2)]
    assert np.array_equal(*simulated)
    real = [Streams(1, system=True).secret("noise", 1, "silo0").standard_normal(4) for _ in range(2)]
    assert not np.array_equal(*real)


def test_system_generator_is_standard_normal_and_finite():
    draws = SystemGenerator().standard_normal(200_000)
    assert np.isfinite(draws).all()
    assert stats.kstest(draws, "norm").pvalue > 1e-6
    uniform = SystemGenerator().random(200_000)
    assert 0 < uniform.min() < uniform.max() < 1
