"""Settings as a person pastes them into a shell: quoted for the shell, and for Hydra inside."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence

PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
WORDS_OF_YAML = ("null", "true", "false", "nan", "inf")


def pasted(key: str, value: str | Sequence[str]) -> str:
    """The word that sets a key to a text, or to a list of texts.

    >>> print(pasted("data.drop", ["stay", "Größe (cm)"]), pasted("data.rare", "keep"))
    'data.drop=[stay,"Größe (cm)"]' data.rare=keep
    """
    if isinstance(value, str):
        return shlex.quote(f"{key}={hydra_text(value)}")
    return shlex.quote(f"{key}=[{','.join(map(hydra_text, value))}]")


def hydra_text(text: str) -> str:
    """A text as Hydra reads it: in quotes, unless it is a plain word. Nothing in it is filled in:
    ${...} is escaped."""
    if PLAIN.fullmatch(text) and text.casefold() not in WORDS_OF_YAML:
        return text
    text = re.sub(r"(\\*)\$\{", r"\1\1\\${", text)
    inside = re.sub(r'(\\*)"', r'\1\1\\"', text)
    return f'"{inside}{text[len(text.rstrip(chr(92))) :]}"'
