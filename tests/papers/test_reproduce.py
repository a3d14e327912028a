import json
import os

import pytest
from command import refusal, run, run_child, success

from fedpriv.errors import FedprivError
from fedpriv.papers import reproduce
from fedpriv.papers.experiments import quick_profiles


def test_figures_side_by_side_are_all_made_and_what_fails_is_named(tmp_path):
    names = ("uldp_fl/fig2", "secured_fl/fig4")
    nowhere = {"FEDPRIV_DATA": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path)}
    done = run_child("reproduce", "--jobs", "2", *names, cwd=tmp_path, env=os.environ | nowhere)
    assert done.returncode == 2
    assert "not drawn: secured_fl/fig4" in done.stderr
    assert "2 of 2: " in done.stderr
    [about] = tmp_path.rglob("about.json")
    assert json.loads(about.read_text())["name"] == "uldp_fl/fig2"
    assert (about.parent / "figure.png").exists()
    assert "figure.png" in (about.parent / "log.txt").read_text()


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--jobs", "0"], "--jobs"),
        (["hu/fig3"], "hu/fig3: no such figure; fedpriv replicate hu/fig3 draws it;"),
        (["uldp_fl/fig44"], "uldp_fl/fig44: no such figure; did you mean uldp_fl/fig4?"),
    ],
)
def test_what_cannot_be_drawn_is_told_in_one_line(words, told, tmp_path):
    assert told in refusal("reproduce", *words, cwd=tmp_path)


def test_every_quick_profile_is_measured_and_all_of_them_fit_two_processors():
    """Ninety minutes for all, thirty for those whose records are in the package, each with a
    quarter to spare."""
    seconds = {name: profile["seconds"] for name, profile in quick_profiles().items()}
    assert set(seconds) == set(reproduce.FIGURES)
    assert min(seconds.values()) > 0

    def minutes(names) -> float:
        return max(sum(seconds[name] for name in names) / 2, max(seconds.values())) / 60

    assert minutes(seconds) < 0.75 * 90
    assert minutes(reproduce.DEFAULT) < 0.75 * 30


def test_a_figure_says_how_it_was_made(tmp_path, monkeypatch):
    def make(folder, profile):
        (folder / "figure.png").write_bytes(b"png")

    monkeypatch.setitem(reproduce.FIGURES, "uldp_fl/fig2", make)
    success("reproduce", "uldp_fl/fig2", "--profile", "paper", cwd=tmp_path)
    [about] = (tmp_path / "outputs").rglob("about.json")
    facts = json.loads(about.read_text())
    assert facts["command"] == "fedpriv reproduce uldp_fl/fig2 --profile paper"
    assert facts["seconds"] >= 0
    assert facts["processor_seconds"] >= 0


def test_all_names_every_figure(tmp_path, monkeypatch):
    asked = []

    def failing(name):
        def make(folder, profile):
            asked.append(name)
            raise FedprivError("no data")

        return make

    made = {name: failing(name) for name in reproduce.FIGURES}
    monkeypatch.setattr(reproduce, "FIGURES", made)
    assert run("reproduce", "all", cwd=tmp_path).returncode == 2
    assert asked == [*made]
