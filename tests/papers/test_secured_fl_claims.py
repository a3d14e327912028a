import pytest

from fedpriv.papers.secured_fl.claims import claims, safe_iterations


def test_each_claim_is_a_row_with_its_numbers():
    rows = claims()
    assert rows["holds"].to_dict() == {
        "Lemma II.1": "yes",
        "Lemma II.2": "not in the first",
        "Lemma III.1": "yes",
        "Theorem III.2": "no",
        "Section VI": "in double precision",
        "Abstract": "relatively",
    }
    assert rows["found"]["Theorem III.2"] == "n = 9: 4, not 7; n = 15: 5, not 13"
    assert rows["found"]["Lemma III.1"] == "safe: 1"
    assert rows["found"]["Lemma II.2"].endswith("0.333 in the second")


@pytest.mark.parametrize(
    ("n", "size", "expected"), [(9, 3, (7, 4)), (15, 3, (13, 5)), (9, None, (1, 1))]
)
def test_the_papers_bound_and_the_true_one(n, size, expected):
    assert safe_iterations(n, size) == expected
