"""Experiments of tests are those of a command, composed once for the same words."""

import dataclasses

from fedpriv.testing import experiments
from fedpriv.testing.experiments import experiment


def test_the_same_words_are_composed_once_and_built_each_time(monkeypatch):
    words = ("algo=uldp_avg", "data=creditcard", "preset.n_users=11")
    monkeypatch.setenv("FEDPRIV_DATA", "here")
    first = experiment(*words)
    monkeypatch.setattr(experiments, "compose_jobs", None)
    monkeypatch.setenv("FEDPRIV_DATA", "there")
    second = experiment(*words)
    assert (first.data.root, second.data.root) == ("here", "there")
    assert dataclasses.replace(second, data=first.data) == first
    assert experiment(*words, algo=first.algo).algo == first.algo
