"""The page of all figures: the latest of each, with how it came to be, and nothing from
elsewhere.
"""

import json
import re

from command import run, success

from fedpriv.errors import FedprivError
from fedpriv.papers import gallery, reproduce


def drawn(folder, name, seconds, picture=b"png"):
    folder.mkdir(parents=True)
    (folder / "figure.png").write_bytes(picture)
    gallery.write_about(
        folder, name, profile="quick", seconds=seconds, processor_seconds=2 * seconds
    )


def links(page):
    return re.findall(r'(?:src|href)="([^"]*)"', page.read_text())


def test_the_latest_of_each_figure_with_its_verdict(tmp_path):
    drawn(tmp_path / "uldp_fl/fig2/2026-01-01_00-00-00", "uldp_fl/fig2", 1.0)
    drawn(tmp_path / "uldp_fl/fig2/2026-01-02_00-00-00", "uldp_fl/fig2", 2.0)
    drawn(tmp_path / "hu/theory/2026-01-01_00-00-00", "hu/theory", 3.0)
    (tmp_path / "uldp_fl/fig2/2026-01-02_00-00-00/numbers.csv").write_text("a\n1\n")
    page = gallery.write_index(tmp_path)
    text = page.read_text()
    assert "2 of " in text
    assert text.index('id="uldp_fl/fig2"') < text.index('id="hu/theory"')
    assert "quick profile, 2 s, 4 processor seconds" in text
    assert "quick profile, 1 s" not in text
    assert "295.8" in text
    assert [link for link in links(page) if link.endswith(".csv")] == [
        "../uldp_fl/fig2/2026-01-02_00-00-00/numbers.csv"
    ]


def test_every_link_is_there_and_none_leads_elsewhere(tmp_path):
    drawn(tmp_path / "uldp_fl/fig2/2026-01-01_00-00-00", "uldp_fl/fig2", 1.0)
    page = gallery.write_index(tmp_path)
    for link in links(page):
        assert link == "data:," or (page.parent / link).resolve().is_file(), link
    assert not re.search(r"https?:|<script", page.read_text())


def test_the_command_writes_it(tmp_path, monkeypatch):
    def make(folder, profile):
        (folder / "figure.png").write_bytes(b"png")

    monkeypatch.setitem(reproduce.FIGURES, "uldp_fl/fig2", make)
    done = success("reproduce", "uldp_fl/fig2", "--profile", "paper", cwd=tmp_path)
    assert done.stdout.splitlines()[-1] == "outputs/figures/index.html"
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
