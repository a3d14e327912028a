"""A claim about one of our own methods has the epsilon that `fedpriv epsilon` prints."""

import math

import pytest
from claim_examples import DP_SGD, changed

import fedpriv
from fedpriv.claims.certificates import certify
from fedpriv.claims.reading import parse
from fedpriv.claims.schema import Statement

SILOS = 5


def claim(noise, rate, rounds):
    """ULDP-AVG: users are clipped, silos share the noise, only the model's observer does not learn
    the sample."""
    sampling = {"rate": rate, "hidden_from": ["released model"]}
    added = {"deviation": noise / math.sqrt(SILOS), "added_by": "clients", "shares": SILOS}
    return changed(
        DP_SGD,
        claims__0__unit="user",
        population={"user": {"contributors": 1, "scopes": 1}},
        releases__0__contributor="user",
        releases__0__times=rounds,
        releases__0__participation=rounds,
        releases__0__noise=DP_SGD["releases"][0]["noise"] | added,
        releases__0__sampling=DP_SGD["releases"][0]["sampling"] | sampling,
    )


def compare(noises, rates, rounds):
    """The number of epsilons that were compared."""
    printed = fedpriv.epsilon(
        "algo=uldp_avg",
        f"allocator.n_silos={SILOS}",
        f"algo.noise_multiplier={','.join(map(str, noises))}",
        f"algo.user_rate={','.join(map(str, rates))}",
        f"rounds={rounds}",
    )
    keys = ["algo.noise_multiplier", "algo.user_rate", "round", "observer"]
    swept = [key for key in keys if key in printed.columns]
    best = printed.groupby(swept)["certified"].min()
    for index, expected in best.items():
        about = dict(zip(swept, index))
        noise = float(about.get("algo.noise_multiplier", noises[0]))
        rate = float(about.get("algo.user_rate", rates[0]))
        observer = {"silo": "client", "cheating server": "server"}.get(
            about["observer"], about["observer"]
        )
        data = claim(noise, rate, int(about["round"]))
        target = Statement(1.0, 1e-5, "user", "add/remove", observer)
        assert certify(parse(data), target).epsilon == pytest.approx(expected, rel=1e-6)
    return len(best)


def test_a_few_epsilons_are_those_that_are_printed():
    assert compare([5], [0.1, 1.0], 10) == 16


@pytest.mark.slow
def test_five_hundred_epsilons_are_those_that_are_printed():
    noises = [0.7, 1, 2, 3.5, 5, 8, 20]
    assert compare(noises, [0.003, 0.02, 0.1, 0.3, 0.7, 1.0], 1000) == 672
