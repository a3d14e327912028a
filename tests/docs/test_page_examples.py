"""Examples of the pages do what the pages say: files are written as they stand, programs and
commands are run."""

import shlex
import sys

import matplotlib
import pandas as pd
import pytest
from command import refusal, run, success
from page_blocks import ROOT, blocks

import fedpriv

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
        success(*words, cwd=folder)
    for text in programs(page):
        exec(text, {})


def results(folder, name, *words):
    """Metrics and epsilons of a run in the page's folder."""
    out = folder / name
    success("--config-dir", "conf", *words, f"hydra.run.dir={name}", cwd=folder)
    return pd.read_csv(out / "metrics.csv"), pd.read_csv(out / "epsilon.csv")


def test_the_added_algorithm_learns_and_is_enforced(written):
    folder = written(ROOT / "docs" / "extending" / "algorithm.md")
    words = ["algo=private_momentum", "algo.noise_multiplier=0.1", "rounds=5"]
    metrics, epsilon = results(folder, "out", *words)
    assert metrics["loss"].iloc[-1] < 0.5 * metrics["loss"].iloc[0]
    assert set(epsilon["status"]) == {"enforced"}


def test_the_added_aggregation_gives_the_sum_and_tells_of_its_assistant(written):
    folder = written(ROOT / "docs" / "extending" / "aggregation.md")
    words = ["rounds=2", "algo.local_epochs=1"]
    two, epsilon = results(folder, "two", "aggregation=two_helpers", *words)
    masked, _ = results(folder, "masked", "aggregation=masked", *words)
    pd.testing.assert_frame_equal(two, masked)
    assert set(epsilon["observer"]) == {"released model", "server", "silo", "assistant"}


def test_the_added_accountant_refuses_what_it_has_no_bound_for(written):
    folder = written(ROOT / "docs" / "extending" / "accountant.md")
    assert "accountant=rdp supports it" in refusal(
        "epsilon", "--config-dir", "conf", "accountant=zcdp", "algo.user_rate=0.1", cwd=folder
    )


@pytest.mark.parametrize("program", programs(ROOT / "docs" / "reference" / "python.md"))
def test_programs_of_the_page_about_python_run(program, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    matplotlib.use("Agg")
    (tmp_path / "outputs").mkdir()
    exec(program, {})
    assert all(path.stat().st_size > 1000 for path in tmp_path.rglob("*.png"))


@pytest.mark.parametrize("page", ["README.md", "docs/index.md"])
def test_tables_of_the_first_pages_are_those_that_a_run_prints(page, tmp_path):
    [shown] = [block.text for block in blocks(ROOT / page) if block.language == "text"]
    printed = [line.rstrip() for line in run(cwd=tmp_path).stdout.splitlines()]
    lines = shown.rstrip().splitlines()
    start = printed.index(lines[0])
    assert printed[start : start + len(lines)] == lines


def test_numbers_of_the_page_about_epsilons_are_those_that_are_printed():
    words = ("algo=uldp_avg", "algo.noise_multiplier=5", "algo.user_rate=0.1", "rounds=100")
    table = fedpriv.epsilon(*words)
    page = (ROOT / "docs" / "privacy" / "epsilon.md").read_text()
    for row in table[table["round"] == 100].itertuples():
        claimed = "" if pd.isna(row.claimed) else f"{row.claimed:.4f} "
        assert (
            f"| 100 | {row.observer} | user | add/remove | {row.method} | {row.certified:.4f} | "
            f"{claimed}|" in page
        )
