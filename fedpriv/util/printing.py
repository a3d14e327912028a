"""The one place where lines are printed, and made harmless.

A text of a stranger's file may hold signs that control the terminal, or turn the direction of
writing around. Every line and table of a command goes through here.
"""

from __future__ import annotations

from typing import TextIO


def printable(text: str) -> str:
    r"""A text with every sign that a reader cannot see escaped, except ends of lines and tabs.

    >>> printable("done\x1b[2J")
    'done\\x1b[2J'
    """
    kept = (sign if sign.isprintable() or sign in "\n\t" else ascii(sign)[1:-1] for sign in text)
    return "".join(kept)


def say(
    text: object = "", *, end: str = "\n", file: TextIO | None = None, flush: bool = False
) -> None:
    """Print a text, by default to stdout."""
    print(printable(str(text)), end=end, file=file, flush=flush)
