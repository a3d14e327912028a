"""Fenced blocks of the pages, for tests that run them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").rglob("*.md")])
FENCE = re.compile(r"^```(\w*)[^\n]*\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Block:
    """language: as it stands after the fence. text: what is in it."""

    language: str
    text: str

    @property
    def path(self) -> str | None:
        """The file that the block is, said by a comment at its beginning."""
        found = re.match(r"(?:# @package \w+\n)?# ([\w/]+\.(?:py|yaml))\n", self.text)
        return found[1] if found else None

    @property
    def commands(self) -> list[str]:
        """Its lines, if they are commands: of a block without a language."""
        return [] if self.language else self.text.splitlines()


def blocks(page: Path) -> list[Block]:
    """Of a page, in their order."""
    return [Block(*found) for found in FENCE.findall(page.read_text())]
