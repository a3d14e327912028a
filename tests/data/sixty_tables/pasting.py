"""The advice of an error's line, as a person pastes it into a shell."""

from __future__ import annotations

import re
import subprocess

from hydra.core.override_parser.overrides_parser import OverridesParser
from refusals import refused

from fedpriv.data.shared import load
from fedpriv.data.table.table import Table
from fedpriv.errors import FedprivError
from fedpriv.settings.keys import typed
from fedpriv.settings.words import with_listed_seeds
from fedpriv.testing import experiment
from fedpriv.util.streams import Streams

PLAIN = r"(?:data|allocator)[\w.]*=[\w./,-]*\w"
QUOTED = r"""'(?:data|allocator)\.[^']*(?:'"'"'[^']*)*'"""
WORD = f"(?:{PLAIN}|{QUOTED})"
ADVICE = re.compile(rf"(?<!\S)\(?({WORD}(?: {WORD})*)")
STEPS = 5


def records(*words: str):
    """The records that a run of these words trains on. Words of `data` alone are parsed by Hydra
    without the rest of the configuration, which takes a hundred times as long."""
    own = [word for word in with_listed_seeds(words) if word.startswith("data.")]
    if len(own) < len(words) - 1 or "data.silo=null" in own:
        found = experiment(*words)
        return load(found.data, found.streams).corpus
    parsed = OverridesParser.create().parse_overrides(own)
    values = {one.get_key_element().removeprefix("data."): one.value() for one in parsed}
    return typed(Table, values, "data").load(Streams(0))


def advised(line: str) -> list[str]:
    """Each advice in a line, without the setting that the line is about."""
    return ADVICE.findall(line.partition(": ")[2])


def pasted(advice: str) -> list[str]:
    """Its words, as bash reads them."""
    done = subprocess.run(
        ["bash", "-c", f"printf '%s\\0' {advice}"], capture_output=True, text=True, check=True
    )
    return done.stdout.split("\0")[:-1]


def follows(words: list[str]) -> str | None:
    """Follow the advice of each line until the table is read; None: it is. Else the last line,
    which has no advice."""
    for _ in range(STEPS):
        try:
            records(*words)
        except FedprivError as error:
            line = str(error)
            assert "\n" not in line
        else:
            return None
        if not (found := advised(line)):
            return line
        words = [*words, *pasted(found[0])]
    raise AssertionError(f"no end of advice: {line}")


def every_advice_helps(words: list[str], *parts: str) -> list[str]:
    """The advice of a refused table; each of it was pasted and led to a line without advice, or to
    records."""
    line = refused(lambda: records(*words), *parts)
    for advice in advised(line):
        after = [*words, *pasted(advice)]
        assert follows(after) is None, f"{line} -> {advice} -> {follows(after)}"
    return advised(line)
