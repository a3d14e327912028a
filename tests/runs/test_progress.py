import io
import time

from rich.console import Console

from fedpriv.aggregation.base import Estimate
from fedpriv.runs import progress
from fedpriv.runs.progress import Progress


def shown(bar):
    console = Console(file=io.StringIO(), width=120, force_terminal=True)
    console.print(bar.bar.get_renderable())
    return console.file.getvalue()


def test_the_bar_predicts_until_the_first_round_is_over():
    progress = Progress(rounds=10, completed=4, metric="accuracy")
    progress.expect(Estimate(("a line",), seconds=20.0))
    assert "0:02:00" in shown(progress)  # six rounds are left
    progress.update(5, {"loss": 0.5, "accuracy": 0.8}, 1.25)
    assert "0:02:00" not in shown(progress)
    assert "accuracy 0.8000" in shown(progress)


def test_a_long_silence_is_broken():
    said = []
    watch = progress._Patience(said.append, patience=0.15)
    with watch:
        time.sleep(1)
    assert 1 <= len(said) <= 3
    assert said == sorted(said)
    assert said[0] > 0.15
    assert not watch._thread.is_alive()
