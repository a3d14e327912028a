"""The configuration reference is what its script writes now, and says something of every key."""

import pytest

from fedpriv.settings.experiment import GROUPS
from scripts import claim_rules, reference


def page_of(group):
    return (reference.PAGES / f"{group}.md").read_text()


def test_the_pages_are_current():
    files = {reference.PAGE, *reference.PAGES.glob("*.md")}
    assert reference.pages() == {file: file.read_text() for file in files}, (
        "run python -m scripts.reference"
    )


def test_every_group_has_a_page_with_a_first_sentence_and_a_place_in_the_navigation():
    nav = (reference.ROOT / "mkdocs.yml").read_text()
    assert set(reference.ABOUT) == {*GROUPS}
    for group, about in reference.ABOUT.items():
        assert page_of(group).startswith(f"# {group}\n\n{about}\n")
        assert f"reference/configuration/{group}.md" in nav
        assert f"(configuration/{group}.md)" in reference.PAGE.read_text()


def test_no_key_is_without_a_meaning():
    rows = [
        line
        for file in (reference.PAGE, *reference.PAGES.glob("*.md"))
        for line in file.read_text().splitlines()
        if line.startswith("| `") and line.count("|") == 4
    ]
    assert len(rows) > 200
    assert not [row for row in rows if row.endswith("|  |")]


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (None, "`null`"),
        (True, "`true`"),
        ("${preset.clip}", "`preset.clip`"),
        ("${.n_silos}", "`n_silos`"),
        ("${oc.env:FEDPRIV_DATA,null}", "`FEDPRIV_DATA`"),
        ([64, 32], "`[64, 32]`"),
    ],
)
def test_defaults_are_shown_as_they_are_typed(value, shown):
    assert reference.typed(value) == shown


def test_meanings_come_from_docstrings_too():
    class Example:
        """An example.

        first, second: what both are. third: another thing,
        on two lines.

        Not of any key.
        """

    assert [
        reference.from_docstring(Example, key) for key in ("first", "second", "third", "fourth")
    ] == [
        "what both are",
        "what both are",
        "another thing, on two lines",
        "",
    ]


def test_the_rules_for_claims_are_printed():
    assert claim_rules.page() == claim_rules.PAGE.read_text(), "run python -m scripts.claim_rules"
    assert "reference/claim_rules.md" in (reference.ROOT / "mkdocs.yml").read_text()
