"""A paper is called by its own title and its own authors wherever it is named."""

import re
from pathlib import Path

import pytest
from page_blocks import ROOT

FILES = [
    file
    for folder in ("fedpriv", "conf", "docs", "scripts", "benchmarks")
    for file in (ROOT / folder).rglob("*.*")
]
TEXTS = {
    file: " ".join(file.read_text().lower().split())
    for file in [*FILES, ROOT / "README.md", ROOT / "CITATION.cff"]
    if Path(file).suffix in (".py", ".md", ".yaml", ".cff")
}
TITLES = {
    "concentrated differentially private": "concentrated differentially private and utility "
    "preserving f",
    "a federated algorithm for": "a federated algorithm for privacy-preserving e",
    "private non-convex f": "private non-convex f",
    "privacy-preserving decentralized": "privacy-preserving decentralized aggregation",
    "federated learning with across-silo": "federated learning with across-silo user-level "
    "differential privacy",
}


@pytest.mark.parametrize(("begin", "title"), TITLES.items())
def test_titles_are_whole(begin, title):
    for file, text in TEXTS.items():
        for found in re.finditer(begin, text):
            assert text[found.start() :].startswith(title), (file, text[found.start() :][:100])


@pytest.mark.parametrize("wrong", ["huang et al", "defaults are the papers'"])
def test_huang_is_one_author_and_not_all_defaults_are_the_papers(wrong):
    assert [file for file, text in TEXTS.items() if wrong in text] == []
