"""Examples of the pages do what the pages say: files are written as they stand, programs and
commands are run."""

import shlex
import sys
from pathlib import Path

import matplotlib
import pandas as pd
import pytest
from command import run
from page_blocks import ROOT, blocks

from fedpriv.testing import check_algorithm

EXTENDING = sorted((ROOT / "docs" / "extending").glob("*.md"))


@pytest.fixture
def written(tmp_path, monkeypatch):
    """A function that writes a page's files into an empty folder, which is then the working
    directory and on the path."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))

    def write(page):
        for block in blocks(page):
            if block.path:
                file = tmp_path / block.path
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_text(block.text)
        return tmp_path

    yield write
    for name in [name for name in sys.modules if name.partition(".")[0] == "mine"]:
        del sys.modules[name]


def programs(page):
    return [block.text for block in blocks(page) if block.language == "python" and not block.path]


@pytest.mark.parametrize("page", EXTENDING, ids=lambda page: page.stem)
def test_what_a_page_adds_runs_by_its_commands(page, written, capsys):
    folder = written(page)
    lines = [line for block in blocks(page) for line in block.commands]
    assert lines
    for line in lines:
        program, *words = shlex.split(line)
        assert program == "fedpriv"
        done = run(*words, cwd=folder)
        assert done.returncode == 0, done.stderr
    for text in programs(page):
        exec(text, {})


def last(folder):
    """The last run's epsilons after its last round."""
    tables = sorted(Path(folder).rglob("epsilon.csv"), key=lambda path: path.stat().st_mtime)
    table = pd.read_csv(tables[-1])
    return table[table["round"] == table["round"].max()]


def test_the_added_algorithm_learns_and_is_enforced(written):
    folder = written(ROOT / "docs" / "extending" / "algorithm.md")
    words = ["algo=private_momentum", "algo.noise_multiplier=0.1", "rounds=5", "hydra.run.dir=out"]
    assert run("--config-dir", "conf", *words, cwd=folder).returncode == 0
    metrics = pd.read_csv(folder / "out" / "metrics.csv")
    assert metrics["loss"].iloc[-1] < 0.5 * metrics["loss"].iloc[0]
    assert set(last(folder)["status"]) == {"enforced"}


def test_the_added_aggregation_gives_the_sum_and_tells_of_its_assistant(written):
    folder = written(ROOT / "docs" / "extending" / "aggregation.md")
    words = ["rounds=2", "algo.local_epochs=1"]
    assert (
        run(
            "--config-dir",
            "conf",
            "aggregation=two_helpers",
            *words,
            "hydra.run.dir=two",
            cwd=folder,
        ).returncode
        == 0
    )
    assert run("aggregation=masked", *words, "hydra.run.dir=masked", cwd=folder).returncode == 0
    two, masked = (pd.read_csv(folder / name / "metrics.csv") for name in ("two", "masked"))
    pd.testing.assert_frame_equal(two, masked)
    table = pd.read_csv(folder / "two" / "epsilon.csv")
    assert set(table["observer"]) == {"released model", "server", "silo", "assistant"}


def test_the_added_aggregation_is_held_to_the_algorithms_rules(written):
    folder = written(ROOT / "docs" / "extending" / "aggregation.md")
    from fedpriv.algorithms.uldp import UldpSgd

    method = UldpSgd(
        clip=1.0, noise_multiplier=5.0, user_rate=1.0, weighting="uniform", global_lr=1.0
    )
    words = ["aggregation=masked", "aggregation._target_=mine.two_helpers.TwoHelpers"]
    assert (folder / "mine").is_dir()
    assert "update: user, add/remove" in check_algorithm(method, *words).checked


def test_the_added_accountant_refuses_what_it_has_no_bound_for(written):
    folder = written(ROOT / "docs" / "extending" / "accountant.md")
    done = run(
        "epsilon", "--config-dir", "conf", "accountant=zcdp", "algo.user_rate=0.1", cwd=folder
    )
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert "accountant=rdp supports it" in done.stderr


@pytest.mark.parametrize("number", range(len(programs(ROOT / "docs" / "reference" / "python.md"))))
def test_programs_of_the_page_about_python_run(number, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    matplotlib.use("Agg")
    (tmp_path / "outputs").mkdir()
    exec(programs(ROOT / "docs" / "reference" / "python.md")[number], {})
    if number == 0:
        assert (tmp_path / "outputs" / "two.png").stat().st_size > 1000


def test_numbers_on_the_pages_are_those_that_are_printed(tmp_path):
    """Of the page about adding an accountant, and of the one about reading an epsilon."""
    import fedpriv

    words = ("algo=uldp_avg", "algo.noise_multiplier=5", "algo.user_rate=0.1", "rounds=100")
    table = fedpriv.epsilon(*words)
    table = table[table["round"] == 100]
    page = (ROOT / "docs" / "privacy" / "epsilon.md").read_text()
    for row in table.itertuples():
        claimed = "" if pd.isna(row.claimed) else f"{row.claimed:.4f} "
        assert (
            f"| 100 | {row.observer} | user | add/remove | {row.method} | {row.certified:.4f} | "
            f"{claimed}|" in page
        )
