import json

import numpy as np
import pytest
from sklearn.datasets import load_breast_cancer

from fedpriv.data.breast_cancer_silos import BreastCancerSilos
from fedpriv.errors import ConfigError
from fedpriv.runs.loop import train
from fedpriv.testing import experiment
from fedpriv.util.streams import Streams


def test_silos_are_the_labels_and_differ_in_size():
    corpus = BreastCancerSilos().load(Streams(0))
    np.testing.assert_array_equal(corpus.train.silo, corpus.train.y)
    assert np.bincount(corpus.train.silo).tolist() == [170, 285]
    assert np.bincount(corpus.test.y).tolist() == [42, 72]
    assert load_breast_cancer().target_names.tolist() == ["malignant", "benign"]


def test_each_silo_is_scaled_by_itself_if_asked_for():
    data = BreastCancerSilos(standardise="silo")
    corpus = data.load(Streams(0))
    for silo in (0, 1):
        own = corpus.train.x[corpus.train.silo == silo]
        np.testing.assert_allclose(own.mean(axis=0), 0, atol=1e-5)
        np.testing.assert_allclose(own.std(axis=0), 1, atol=1e-5)
    assert "label of a test record" in data.not_covered[0]


def test_all_silos_are_scaled_together():
    data = BreastCancerSilos()
    corpus = data.load(Streams(0))
    np.testing.assert_allclose(corpus.train.x.mean(axis=0), 0, atol=1e-5)
    assert abs(corpus.train.x[corpus.train.silo == 0].mean()) > 0.3
    assert data.not_covered == ()
    with pytest.raises(ConfigError, match=r"data.standardise=none: silo or all"):
        BreastCancerSilos(standardise="none")


def test_a_run_says_what_its_data_set_does_that_no_epsilon_covers(tmp_path):
    exp = experiment(
        "data=breast_cancer_silos", "data.standardise=silo", "algo=minibatch_sgd", "rounds=1"
    )
    train(exp, "", tmp_path)
    status = json.loads((tmp_path / "status.json").read_text())
    assert set(exp.data.not_covered) <= set(status["not_covered"])
