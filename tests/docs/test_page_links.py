"""Links of README lead to files. The pages' own links, and their anchors and places in the
navigation, are checked by MkDocs, which builds the site without asking anybody."""

import re
import subprocess
import sys
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
