"""Links among the pages, README and files lead somewhere, anchors included, without MkDocs; with it
the site builds."""

import re
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest
import yaml
from page_blocks import FENCE, PAGES, ROOT

DOCS = ROOT / "docs"
LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)")


def prose(page):
    return FENCE.sub("", page.read_text())


@cache
def anchors(page):
    """As Python-Markdown makes them of headings."""
    heads = re.findall(r"^#+ (.+)$", prose(page), re.MULTILINE)
    words = [re.sub(r"\[([^\]]*)\]\([^)]*\)|`", r"\1", head).lower() for head in heads]
    return {re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", word).strip()) for word in words}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_no_link_is_dead(page):
    for target in LINK.findall(prose(page)):
        if re.match(r"https?:", target):
            continue
        path, _, anchor = target.partition("#")
        file = (page.parent / path).resolve() if path else page
        assert file.is_relative_to(
            ROOT if page.name == "README.md" and page.parent == ROOT else DOCS
        ), target
        assert file.is_file(), target
        assert not anchor or anchor in anchors(file), target


def test_every_page_is_in_the_navigation():
    def files(node):
        if isinstance(node, str):
            return [node]
        return [
            file
            for part in (node.values() if isinstance(node, dict) else node)
            for file in files(part)
        ]

    shown = files(yaml.safe_load((ROOT / "mkdocs.yml").read_text())["nav"])
    assert sorted(shown) == sorted(str(page.relative_to(DOCS)) for page in DOCS.rglob("*.md"))


def test_readme_is_about_a_hundred_lines():
    assert len((ROOT / "README.md").read_text().splitlines()) <= 110


@pytest.mark.skipif(
    shutil.which("mkdocs", path=str(Path(sys.executable).parent)) is None, reason="needs MkDocs"
)
def test_the_site_builds_without_a_warning_and_asks_nobody(tmp_path):
    mkdocs = Path(sys.executable).parent / "mkdocs"
    command = [mkdocs, "build", "--strict", "--site-dir", tmp_path / "site"]
    environment = {"NO_MKDOCS_2_WARNING": "1", "PATH": str(mkdocs.parent)}
    done = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "WARNING" not in done.stderr
    for page in (tmp_path / "site").rglob("*.html"):
        loaded = re.findall(
            r"""<(?:script|link|img|iframe)\b[^>]*(?:src|href)=["']?(https?:[^"' >]+)""",
            page.read_text(),
        )
        assert not loaded, page
