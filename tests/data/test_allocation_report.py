import numpy as np
import pytest

from fedpriv.data.allocate import Allocation
from fedpriv.data.allocation_report import MAX_COLUMNS, columns, draw, statistics


@pytest.fixture
def allocation():
    """Silo 0: user 0 twice, user 1 once. Silo 1: user 1 three times, user 2 once but held out. User
    3 has nothing."""
    return Allocation(
        user=np.array([0, 0, 1, 1, 1, 1, 2]),
        silo=np.array([0, 0, 0, 1, 1, 1, 1]),
        trains=np.array([True] * 6 + [False]),
        n_users=4,
        n_silos=2,
    )


def test_statistics(allocation):
    frame = statistics(allocation)
    assert frame.index.tolist() == ["0", "1", "all"]
    names = ["users", "records", "local_test", "mean", "median", "max"]
    assert frame.columns.tolist() == names
    rows = [[2, 3, 0, 1.5, 1.5, 2], [1, 3, 1, 3, 3, 3], [2, 6, 1, 3, 3, 4]]
    assert frame.to_numpy().tolist() == rows


def random_allocation(n_users, n_silos, records):
    rng = np.random.default_rng(0)
    user, silo = rng.integers(n_users, size=records), rng.integers(n_silos, size=records)
    return Allocation(user, silo, np.ones(records, dtype=bool), n_users, n_silos)


@pytest.mark.parametrize(("n_users", "n_silos"), [(10, 3), (100, 5), (10_000, 50), (1, 1)])
@pytest.mark.parametrize("suffix", ["png", "pdf"])
def test_drawing_leaves_one_picture(tmp_path, n_users, n_silos, suffix):
    path = tmp_path / "deep" / f"figure13.{suffix}"
    draw(random_allocation(n_users, n_silos, 20_000), path)
    assert path.read_bytes()[:4] == {"png": b"\x89PNG", "pdf": b"%PDF"}[suffix]
    assert list(path.parent.iterdir()) == [path]


def test_a_failed_drawing_leaves_nothing(tmp_path, allocation):
    with pytest.raises(ValueError, match="not supported"):
        draw(allocation, tmp_path / "figure.nonsense")
    assert list(tmp_path.iterdir()) == []


def test_columns_are_users_largest_first(allocation):
    heights, edges = columns(allocation.counts())
    np.testing.assert_array_equal(heights, [[1, 2, 0, 0], [3, 0, 0, 0]])
    np.testing.assert_array_equal(edges, [0.5, 1.5, 2.5, 3.5, 4.5])


@pytest.mark.parametrize("n_users", [500, 501, 1003, 10_000])
def test_many_users_share_columns_and_no_record_is_lost(n_users):
    counts = random_allocation(n_users, 5, 20_000).counts()
    heights, edges = columns(counts)
    assert heights.shape[1] <= MAX_COLUMNS
    np.testing.assert_allclose((heights * np.diff(edges)).sum(axis=1), counts.sum(axis=1))
    assert (np.diff(heights.sum(axis=0)) <= 1e-9).all()
