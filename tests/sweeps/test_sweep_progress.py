"""What a sweep shows while it goes on."""

import re
from unittest.mock import patch

import pytest
from command import run, success
from interrupted import interrupted_in

from fedpriv.sweeps import progress
from fedpriv.sweeps.progress import SweepProgress

WORDS = ("-m", "seed=0..1", "rounds=2", "preset.local_epochs=1", "preset.n_users=6")


@pytest.mark.parametrize("launcher", ["basic", "side_by_side"])
def test_a_sweep_has_one_line_a_run(launcher, tmp_path):
    words = (*WORDS, f"hydra/launcher={launcher}", "hydra.sweep.dir=out")
    done = success(*words, cwd=tmp_path)
    lines = [line for line in done.stderr.splitlines() if re.match(r"\d/2  ", line)]
    assert len(lines) == 2
    assert re.match(r"1/2  seed=0: accuracy 0\.\d{4}, epsilon 1\.061", lines[0])
    assert re.match(r"2/2  seed=1: accuracy 0\.\d{4}, epsilon 1\.061$", lines[1])
    assert "round 1/2" not in done.stderr
    assert "HYDRA" not in done.stdout
    assert done.stdout.count("certified") == 1  # the table of all, none of a single run
    again = run(*words, cwd=tmp_path)  # finished runs are shown as well
    assert re.search(r"2/2  seed=1: accuracy 0\.\d{4}, epsilon 1\.061\n", again.stderr)


def test_an_interrupted_sweep_says_how_to_go_on(tmp_path):
    words = (*WORDS, "hydra/launcher=side_by_side")
    with interrupted_in(2):
        done = run(*words, cwd=tmp_path)
    assert done.returncode == 130
    last = done.stderr.splitlines()[-1]
    said = (
        r"fedpriv: interrupted; continue with fedpriv -m seed=0,1 .* hydra.sweep.dir=(outputs/.*)"
    )
    folder = re.fullmatch(said, last)
    assert folder, last
    again = success(*words, f"hydra.sweep.dir={folder[1]}", cwd=tmp_path)
    assert "2 done" in again.stdout


def test_a_failed_run_is_named_with_its_reason(tmp_path, capsys):
    with SweepProgress([5, 5], [["seed=0", "rounds=5"], ["seed=1", "rounds=5"]]) as shown:
        shown.ended(1, tmp_path, ["seed=1", "rounds=5"], "it diverged")
    assert capsys.readouterr().err == "1/2  seed=1: failed: it diverged\n"
    with SweepProgress([5], [["seed=1"]]) as shown:
        shown.ended(0, tmp_path, ["seed=1"], "it diverged")
    assert capsys.readouterr().err == "1/1  seed=1: failed: it diverged\n"


@pytest.mark.parametrize(
    ("rounds", "resumed", "left"), [(100, 60, "about 4 s left"), (1000, 990, "failed: why")]
)
def test_the_time_left_counts_the_rounds_of_this_process(rounds, resumed, left, tmp_path, capsys):
    """The start of a resumed run took longer than its last rounds: few rounds predict nothing."""
    now = [0.0]
    with patch.object(progress.time, "monotonic", lambda: now[0]):
        shown = SweepProgress([rounds, rounds])
        first, second = shown.on_round(0), shown.on_round(1)
        first(resumed)
        if resumed == 60:
            second(0)
            now[0] = 20.0
            second(80)
        shown.ended(0, tmp_path, [], "why")
    assert capsys.readouterr().err.endswith(f"{left}\n")
