import io
from itertools import pairwise
from unittest.mock import patch

import pytest
from rich.console import Console

from fedpriv.runs import progress
from fedpriv.runs.progress import Progress, at_chance, time_left
from fedpriv.testing.experiments import experiment


def shown(bar):
    console = Console(file=io.StringIO(), width=120, force_terminal=True)
    console.print(bar.bar.get_renderable())
    return console.file.getvalue()


def test_the_bar_shows_the_metric():
    progress = Progress(rounds=10, completed=4, metric="accuracy")
    progress.update(5, {"loss": 0.5, "accuracy": 0.8}, 1.25)
    assert "accuracy 0.8000" in shown(progress)


def piped(capsys, rounds, seconds, *, completed=0):
    """The lines of a run without a terminal, each of whose rounds takes some seconds."""
    now = [0.0]
    with patch.object(progress.time, "monotonic", lambda: now[0]):
        bar = Progress(rounds, completed, "accuracy")
        for number in range(completed + 1, rounds + 1):
            now[0] += seconds
            bar.update(number, {"loss": 0.5, "accuracy": 0.8}, 1.25)
    lines = [line for line in capsys.readouterr().err.splitlines() if line.startswith("round")]
    return {int(line.split()[1].split("/")[0]): line for line in lines}


def test_a_slow_run_without_a_terminal_is_not_silent(capsys):
    lines = piped(capsys, 4000, 10.0)
    shown = [number for number in lines if number <= 57]
    assert shown[0] == 1
    assert max(b - a for a, b in pairwise(sorted(lines))) <= 3  # 30 seconds
    assert lines[1].endswith("accuracy 0.8000  epsilon 1.25")


def test_a_fast_run_without_a_terminal_has_few_lines(capsys):
    assert list(piped(capsys, 4000, 0.001)) == [1, *range(400, 4001, 400)]
    assert list(piped(capsys, 30, 0.001, completed=20)) == [21, 24, 27, 30]


@pytest.mark.parametrize(
    ("seconds", "said"),
    [
        *((0.2, "about 1 s left"), (119, "about 119 s left")),
        *((600, "about 10 min left"), (7200, "about 2 h left")),
    ],
)
def test_the_time_left_is_rounded(seconds, said):
    assert time_left(seconds) == said


@pytest.mark.parametrize(
    ("own", "trivial", "said"),
    [("0.5", "0.5", True), ("0.51", "0.5", True), ("0.53", "0.5", False), ("0.4", "", False)],
)
def test_a_model_at_chance_says_what_to_turn(own, trivial, said):
    row = {"metric": "auc", "model": own, "trivial": trivial}
    text = at_chance(row, experiment("algo=uldp_avg").algo)
    found = f"At chance: auc {float(own):.4f} of the model is not clearly above "
    assert text.startswith(found) == said
    assert ("turn algo.global_lr, algo.clip, algo.local_lr, rounds" in text) == said
