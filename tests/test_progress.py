import io

from rich.console import Console

from fedpriv.aggregation.base import Estimate
from fedpriv.progress import Progress


def shown(progress):
    console = Console(file=io.StringIO(), width=120, force_terminal=True)
    console.print(progress.bar.get_renderable())
    return console.file.getvalue()


def test_the_bar_predicts_until_the_first_round_is_over():
    progress = Progress(rounds=10, done=4, metric="accuracy")
    progress.expect(Estimate(("a line",), seconds=20.0))
    assert "0:02:00" in shown(progress)  # six rounds are left
    progress.update(5, {"loss": 0.5, "accuracy": 0.8}, 1.25)
    assert "0:02:00" not in shown(progress)
    assert "accuracy 0.8000" in shown(progress)
