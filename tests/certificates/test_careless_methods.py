"""Methods that declare one thing and do another: refused, or without a certificate."""

from dataclasses import replace

import numpy as np
import pytest
from test_derive import USER, claimed, plan

from fedpriv.certificates.derive import planned
from fedpriv.certificates.noise import SumNoise
from fedpriv.certificates.request import Request
from fedpriv.rounds.contributors import Users
from fedpriv.rounds.plan import Observer


def with_channels(made, *names):
    return replace(made, channels=dict.fromkeys(names, made.channel))


def asked(requests, made, contributors=None, targets=(USER,)):
    return planned(requests, made, contributors or Users(), targets, round=1, claim=claimed)


def test_each_query_of_a_round_draws_its_users_afresh():
    """One sample for two queries costs more than two samples, which is what is charged."""
    made = with_channels(plan(Observer("server")), "a", "b")
    made = replace(made, federation=replace(made.federation, n_users=1000))
    requests = [Request(SumNoise(), name=name) for name in "ab"]
    one, two = (query.sampled for query in asked(requests, made, Users(sampled=0.5)))
    assert not np.array_equal(one, two)
    again = asked(requests, made, Users(sampled=0.5))
    assert np.array_equal(one, again[0].sampled)


@pytest.mark.parametrize(
    ("requests", "message"),
    [
        ([Request(SumNoise()), Request(SumNoise())], "share a name"),  # and so their noise
        ([Request(SumNoise(), n_summed=1000)], "a sum over 1000 of 4 silos"),
        ([Request(SumNoise(), n_summed=0)], "a sum over 0 of 4 silos"),
        ([Request(SumNoise(), invited=(0, 0, 1, 2))], "not different silos"),
        ([Request(SumNoise(), invited=(0, 1, 2, 4))], "not different silos"),
    ],
)
def test_what_cannot_be_asked_is_refused(requests, message):
    with pytest.raises(ValueError, match=message):
        asked(requests, plan())
