import csv

import pytest

from fedpriv.figures import claimed_certified, optimality_gap


def read(path):
    with open(path, newline="") as file:
        return list(csv.DictReader(file))


def test_every_papers_counterexamples_stand_side_by_side(tmp_path):
    assert claimed_certified.draw(tmp_path).stat().st_size > 10_000
    rows = read(tmp_path / "claimed_certified.csv")
    assert {row["name"].split(",")[0] for row in rows} == {"Uldp-FL", "Hu et al.", "Huang"}
    for row in rows:
        assert float(row["claimed"]) < float(row["certified"])
        assert not row["attained"] or float(row["attained"]) <= float(row["certified"]) * (1 + 1e-9)
    by_name = {row["name"]: row for row in rows}
    # ALGORITHMS 9, rows 3, 14, 10, 25
    naive = by_name["Uldp-FL, ULDP-NAIVE: 100 rounds"]
    assert (float(naive["claimed"]), float(naive["certified"])) == pytest.approx((10.7255, 24.382), abs=1e-3)
    group = by_name["Uldp-FL, group lemma: 32 records"]
    assert (float(group["claimed"]), float(group["certified"])) == pytest.approx((2151.976, 3266.97), abs=0.1)
    convex = by_name["Hu et al., Theorem 1: convex losses, tau = 10, r = 10"]
    assert float(convex["attained"]) == pytest.approx(25.111, abs=1e-3)


def test_bounds_are_above_what_they_bound(tmp_path, monkeypatch):
    monkeypatch.setitem(optimality_gap.SIZES, "quick", (60, 3))
    monkeypatch.setattr(optimality_gap, "NOISES", (0.01, 0.3))
    monkeypatch.setattr(optimality_gap, "STEPS", (1, 4))
    assert optimality_gap.draw(tmp_path).stat().st_size > 10_000
    rows = read(tmp_path / "optimality_gap.csv")
    assert len(rows) == 8
    for row in rows:
        assert 0 < float(row["measured"]) < float(row["bound"])
        assert float(row["printed"]) < float(row["bound"])
