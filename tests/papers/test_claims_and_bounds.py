from pathlib import Path

import pandas as pd
import pytest

from fedpriv.papers import claimed_certified
from fedpriv.papers.hu import optimality_gap
from fedpriv.papers.uldp_fl import clipping_overhead


def test_every_papers_counterexamples_stand_side_by_side(tmp_path):
    claimed_certified.draw(tmp_path)
    assert (tmp_path / "figure.png").stat().st_size > 10_000
    rows = pd.read_csv(tmp_path / "claimed_certified.csv").set_index("name")
    papers = {"Uldp-FL", "Hu et al.", "Huang", "Lowy et al."}
    assert {*rows.index.str.split(",").str[0]} == papers
    claimed, certified, attained = (rows[key] for key in ("claimed", "certified", "attained"))
    assert ((certified <= claimed) == (rows["fails"] == "proof")).all()
    assert ((attained > claimed) == (rows["fails"] == "number")).all()
    assert not (attained > certified * (1 + 1e-9)).any()
    # ALGORITHMS 9, rows 3, 14, 10, 25
    naive = rows.loc["Uldp-FL, ULDP-NAIVE: 100 rounds"]
    assert [naive["claimed"], naive["certified"]] == pytest.approx([10.7255, 24.382], abs=1e-3)
    group = rows.loc["Uldp-FL, group lemma: 32 records"]
    found = [group["claimed"], group["certified"], group["by_proof"]]
    assert found == pytest.approx([2151.976, 295.8, 3266.97], abs=0.1)
    assert (naive["fails"], group["fails"]) == ("number", "proof")
    convex = attained["Hu et al., Theorem 1: convex losses, tau = 10, r = 10"]
    assert convex == pytest.approx(25.111, abs=1e-3)


def shown(number):
    return f"{number:,.0f}" if number >= 1000 else f"{number:.4g}"


def test_the_page_about_papers_says_of_each_claim_what_fails():
    """Rows of its table against the counterexamples' own numbers, and what is said to fail against
    what does."""
    text = (Path(__file__).parents[2] / "docs" / "papers" / "index.md").read_text()
    table = text[text.index("| claim | why it fails |") :].split("\n\n")[0].splitlines()[2:]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in table]
    by_name = {example.name: example for example in claimed_certified.all_counterexamples()[::-1]}
    rows = {
        "ULDP-NAIVE": "Uldp-FL, ULDP-NAIVE: 100 rounds",
        "ULDP-GROUP": "Uldp-FL, group lemma: 32 records",
        "the same, 64": "Uldp-FL, group lemma: 64 records",
        "CDP-FedAvg": "Hu et al., Theorem 1: convex losses, tau = 10, r = 10",
        "the same, its DP-SGD": "Hu et al., DP-SGD baseline",
        "DP-ERM, 100 users": "Huang, Theorem 1: m = 100, E = 10, n = 1000, T = 100",
        "SPIDER, Theorem 3.1": "Lowy et al., SPIDER, Theorem 3.1: q = 5, R = 25, epsilon 18",
        "MB-SGD of the same paper": "Lowy et al., MB-SGD, epsilon 18",
        "its SPIDER alternate": "Lowy et al., SPIDER alternate",
        "programs that clip": "Lowy et al., clips per tensor",
    }
    for start, name in rows.items():
        [(_, _, fails, claimed, certified)] = [row for row in cells if row[0].startswith(start)]
        example = by_name[name]
        assert fails == {"number": "the number", "proof": "only the proof"}[example.fails], start
        assert claimed == shown(example.claimed)
        for number in (example.certified, example.by_proof, example.attained):
            assert number is None or any(
                form in certified for form in (shown(number), f"{number:.3g}")
            ), start


def test_bounds_are_above_what_they_bound(tmp_path, monkeypatch):
    monkeypatch.setitem(optimality_gap.SIZES, "quick", (60, 3))
    monkeypatch.setattr(optimality_gap, "NOISES", (0.01, 0.3))
    monkeypatch.setattr(optimality_gap, "STEPS", (1, 4))
    optimality_gap.draw(tmp_path)
    assert (tmp_path / "figure.png").stat().st_size > 10_000
    rows = pd.read_csv(tmp_path / "optimality_gap.csv")
    assert len(rows) == 8
    assert ((rows["measured"] > 0) & (rows["measured"] < rows["bound"])).all()
    assert (rows["printed"] < rows["bound"]).all()


def test_weights_by_records_do_not_lower_the_bias_of_clipping(tmp_path, monkeypatch):
    """Uldp-FL, Theorem 6 and section 4.1: the terms bound what is measured, and the sixth is
    larger, not smaller."""
    monkeypatch.setitem(clipping_overhead.SIZES, "quick", (8, 60, 2))
    monkeypatch.setattr(clipping_overhead, "NOISES", (1.0, 5.0))
    figure = clipping_overhead.draw(tmp_path)
    assert (tmp_path / "figure.png").stat().st_size > 10_000
    assert [(axis.get_xlabel(), axis.get_title()) for axis in figure.axes] == [
        ("sigma", "noise (4th term)"),
        ("clip C", "bias of clipping, weights 1 / |S|"),
        ("clip C", "bias of clipping, weights by records"),
    ]
    rows = pd.read_csv(tmp_path / "clipping_overhead.csv")
    assert len(rows) == 2 * 6 + 2
    for term in ("noise", "sampling", "clipping"):
        assert (rows[f"{term}_measured"] >= 0).all()
        assert (rows[f"{term}_measured"] <= rows[term]).all()
    at_five = rows[rows["noise_multiplier"] == 5].set_index("clip")
    weighted = at_five["by_records"]
    equal, by_records = at_five[~weighted].loc[[*clipping_overhead.CLIPS]], at_five[weighted]
    for quantity in ("clipping", "clipping_measured"):
        assert (equal[quantity] < by_records[quantity]).all()
