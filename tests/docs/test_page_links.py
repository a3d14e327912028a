"""Links of README lead to files. The pages' own links, and their anchors and places in the
navigation, are checked by MkDocs, which builds the site without asking anybody."""

import ast
import re
import subprocess
import sys
import tomllib
from functools import cache
from pathlib import Path

import pytest
from page_blocks import FENCE, ROOT

README = (ROOT / "README.md").read_text()
MKDOCS = Path(sys.executable).parent / "mkdocs"


def test_readme_is_about_a_hundred_lines_and_leads_to_files():
    assert len(README.splitlines()) <= 110
    links = re.findall(r"\[[^\]]*\]\(([^)\s]+)\)", FENCE.sub("", README))
    assert len(links) > 10
    for target in links:
        assert (ROOT / target).is_file(), target


@pytest.mark.skipif(not MKDOCS.exists(), reason="needs MkDocs")
def test_the_site_builds_without_a_warning_and_asks_nobody(tmp_path):
    command = [MKDOCS, "build", "--strict", "--site-dir", tmp_path / "site"]
    environment = {"NO_MKDOCS_2_WARNING": "1", "PATH": str(MKDOCS.parent)}
    done = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "WARNING" not in done.stderr
    loads = re.compile(r"""<(?:script|link|img|iframe)\b[^>]*(?:src|href)=["']?(https?:[^"' >]+)""")
    for page in (tmp_path / "site").rglob("*.html"):
        assert not loads.findall(page.read_text()), page


# -- a paper is called by its own title and its own authors wherever it is named -------------------


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


# -- every line of the pages about trust names tests, and these exist ------------------------------


PAGES = ROOT / "docs" / "trust"
AGGREGATIONS = sorted(path.stem for path in (ROOT / "conf" / "aggregation").glob("*.yaml"))


@cache
def functions(file):
    tree = ast.parse((ROOT / "tests" / file).read_text())
    return {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}


@pytest.mark.parametrize("page", ["README", "files", *AGGREGATIONS])
def test_every_line_is_shown_by_tests_that_exist(page):
    """Lines are what each party learns, and the rows of tables whose last column is for tests."""
    text = (PAGES / f"{page}.md").read_text()
    tables = re.findall(r"^\| who .*shown by \|\n\| [- |]+\n((?:\|.*\n)+)", text, re.MULTILINE)
    lines = re.findall(r"^- .+", text, re.MULTILINE) + "".join(tables).splitlines()
    assert len(lines) >= 5
    for line in lines:
        named = re.findall(r"`([\w/]+\.py)::(\w+)`", line)
        assert named, f"no test shows: {line}"
        assert line.count("::") == len(named), line
        for file, test in named:
            assert test in functions(file), f"{file} has no {test}"


@pytest.mark.parametrize("page", AGGREGATIONS)
def test_an_aggregation_has_its_line_and_a_page_that_opens_with_what_each_party_learns(page):
    assert f"| [{page}]({page}.md) |" in (PAGES / "README.md").read_text()
    opening = (PAGES / f"{page}.md").read_text().partition("## Who may do what")[0]
    assert "## What each party learns\n\n- " in opening


# -- the page about the architecture: rooms, and files that answer its questions -------------------


PAGE = (ROOT / "docs" / "architecture.md").read_text()

WHERE = PAGE.split("## Where is what")[1].split("## ")[0]
ANSWERS = re.findall(r"^\| ([^|]+\?) \| `([\w/]+\.py)` \|$", WHERE, re.MULTILINE)

HOLDS = {  # what only the right file defines
    "rounds/bounding.py": "def bounded(",
    "runtime/silo.py": "class SiloParticipant",
    "mechanisms/gaussian.py": "class Gaussian(",
    "certificates/derive.py": "Event(",
    "certificates/noise.py": "class SumNoise(",
    "certificates/sampling.py": "class Poisson(",
    "rounds/contributors.py": "class Users(",
    "rounds/local_job.py": "class LocalJob",
    "rounds/plan.py": "class Observer",
    "accountants/ledger.py": "class Ledger",
    "runs/tables.py": "epsilon.csv",
    "runs/journal.py": "class Journal",
    "runs/run_or_resume.py": "def ",
    "runtime/identity.py": "class RunIdentity",
    "settings/experiment.py": "class Experiment",
    "data/allocate.py": "class Allocator(",
    "data/flags.py": "def flags(",
    "training/select.py": "def select_trainer(",
    "training/layers/supported.py": "class ",
    "parties/post.py": "class Post",
    "aggregation/base.py": "class Aggregation(",
    "util/streams.py": "class Streams",
    "testing/algorithms.py": "def check_algorithm(",
    "audit/premises.py": "def run_noise(",
    "papers/ledger/rule.py": "def answer(",
}


def test_twenty_questions_have_one_file_each_that_defines_what_they_ask_for():
    assert len(ANSWERS) >= 20
    assert {file for _, file in ANSWERS} == set(HOLDS)
    for question, file in ANSWERS:
        assert HOLDS[file] in (ROOT / "fedpriv" / file).read_text(), question


def test_every_room_has_a_line_in_the_order_of_the_import_contract():
    layers = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
    [contract] = [c for c in layers["contracts"] if c["type"] == "layers"]
    floors = [layer.split(" | ") for layer in contract["layers"]]
    place = {room: i for i, floor in enumerate(floors) for room in floor if room != "__main__"}
    table = PAGE.split("## Rooms")[1].split("Torch is")[0]
    listed = re.findall(r"`(\w+)/?`", " ".join(re.findall(r"^\| (`[^|]+) \|", table, re.MULTILINE)))
    assert set(listed) == set(place)
    assert listed == sorted(listed, key=place.get)
