import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import StandardScaler

from fedpriv.data.split import share, standardised, stratified


@given(st.lists(st.integers(0, 5), min_size=1, max_size=200), st.data())
def test_a_stratified_split_is_a_partition_with_exact_shares(labels, data):
    labels = np.array(labels)
    n_test = data.draw(st.integers(0, len(labels)))
    train, test = stratified(labels, n_test, np.random.default_rng(0))
    assert len(test) == n_test
    assert np.array_equal(np.sort(np.concatenate([train, test])), np.arange(len(labels)))
    assert (np.diff(train) > 0).all()
    assert (np.diff(test) > 0).all()
    for label in np.unique(labels):
        exact = n_test * np.mean(labels == label)
        assert abs((labels[test] == label).sum() - exact) < 1 + 1e-9


@pytest.mark.parametrize("counts", [(357, 212), (50, 3, 147), (418, 241_667)])
def test_class_sizes_are_those_of_scikit_learn(counts):
    labels = np.repeat(np.arange(len(counts)), counts)
    ours, theirs = stratified(labels, share(len(labels), 0.15), np.random.default_rng(0))
    train, test = train_test_split(labels, test_size=0.15, random_state=0, stratify=labels)
    assert np.array_equal(np.bincount(labels[ours]), np.bincount(train))
    assert np.array_equal(np.bincount(labels[theirs]), np.bincount(test))


def test_every_record_of_a_class_is_as_likely_to_be_held_out():
    labels = np.repeat([0, 1], [30, 10])
    rng = np.random.default_rng(0)
    held = np.zeros(40)
    for _ in range(2000):
        held[stratified(labels, 8, rng)[1]] += 1
    assert np.abs(held / 2000 - 0.2).max() < 0.05  # more than five standard deviations of 0.009


@pytest.mark.parametrize(
    ("n", "fraction", "expected"),
    [(284_807, 0.15, 42_722), (569, 0.2, 114), (1000, 0.1, 100), (501, 0.1, 51), (100, 0.07, 7)],
)
def test_a_share_is_rounded_up(n, fraction, expected):
    assert share(n, fraction) == expected


def test_scaling_equals_scikit_learn_and_leaves_constants_finite():
    rng = np.random.default_rng(0)
    train, test = rng.normal(3, 7, (50, 4)), rng.normal(3, 7, (20, 4))
    train[:, 2], test[:, 2] = 0.1, 5.0
    scaler = StandardScaler().fit(train)
    ours = standardised(train, test)
    np.testing.assert_allclose(ours[0], scaler.transform(train), atol=1e-6)
    np.testing.assert_allclose(ours[1], scaler.transform(test), rtol=1e-6)
    assert ours[0].dtype == np.float32
    assert standardised(train, ddof=1)[0][:, 0].std(ddof=1) == pytest.approx(1, abs=1e-6)
