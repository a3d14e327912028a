"""Words that a person pastes: a shell and Hydra read the text back, and fill nothing in."""

import shlex

import pytest

from fedpriv.settings.compose import CommandLine, compose_jobs
from fedpriv.settings.experiment import resolved
from fedpriv.settings.words import conf_dir
from fedpriv.util.pasted import pasted

TEXTS = (
    *("visits.csv", "a b.csv", "Größe (cm).csv", "null", "1e3", "it's", 'a "b" c', "back\\slash"),
    *("end\\", "${seed}", "${oc.env:HOME}", "\\${seed}", '\\\\"${seed}"\\', "$HOME", "a,b=[c]"),
)


@pytest.mark.parametrize("text", TEXTS)
def test_a_text_comes_back_from_the_command_line(text):
    words = shlex.split(f"data=table {pasted('data.path', text)}")
    [config] = compose_jobs(CommandLine.parse(words), conf_dir())
    assert resolved(config)["data"]["path"] == text
