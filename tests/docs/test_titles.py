"""A paper is called by its own title and its own authors wherever it is named."""

import re
from pathlib import Path

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


def test_titles_are_whole():
    for file, text in TEXTS.items():
        for begin, title in TITLES.items():
            for found in re.finditer(begin, text):
                assert text[found.start() :].startswith(title), (file, text[found.start() :][:100])


def test_huang_is_one_author():
    assert [file for file, text in TEXTS.items() if "huang et al" in text] == []


def test_pages_do_not_say_that_all_defaults_are_the_papers():
    assert [file for file, text in TEXTS.items() if "defaults are the papers'" in text] == []
