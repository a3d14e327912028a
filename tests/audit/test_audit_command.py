"""`fedpriv audit` as a user sees it: table, file, exit codes."""

import pandas as pd
import pytest
from command import refusal, run, success
from planted_bugs import clip_of_a_part

from fedpriv.audit import command
from fedpriv.audit.audit import Effort

WORDS = ["algo=uldp_sgd", "algo.noise_multiplier=1", "allocator.n_silos=1", "rounds=1"]


@pytest.fixture
def _short(monkeypatch):
    monkeypatch.setattr(command, "QUICK", Effort(1e9, 100))


@pytest.mark.usefixtures("_short")
def test_table_and_file(tmp_path):
    done = success("audit", "--quick", *WORDS, "hydra.run.dir=here", cwd=tmp_path)
    assert "ULDP-SGD, T=1: epsilon at delta = 1e-05" in done.stdout
    assert "certified ┃ claimed ┃ audited" in done.stdout  # whole, in 80 columns
    assert "Table: here" in done.stdout
    table = pd.read_csv(tmp_path / "here" / "audit.csv")
    assert set(table["observer"]) == {"server", "released model", "cheating server"}
    assert (table["audited"] <= table["certified"]).all()
    assert (table["true_positives"] <= table["positives"]).all()
    assert (table["positives"] > 0).all()


@pytest.mark.usefixtures("_short", "no_premises")
@pytest.mark.parametrize("flags", [["--quick"], ["--one-run", "--canaries", "20"]])
def test_the_noise_of_a_target_is_that_of_the_run(flags, tmp_path):
    """Also of a method that asks two queries a round and has no users."""
    for number, method in enumerate(
        (["algo=uldp_avg"], ["algo=spider", "data=breast_cancer_silos"])
    ):
        here = f"hydra.run.dir=audit{number}"
        words = [*method, "accountant.target=2", "rounds=2", "preset.local_epochs=1", here]
        success("audit", *flags, *words, cwd=tmp_path)
        table = pd.read_csv(tmp_path / f"audit{number}" / "audit.csv").set_index("observer")
        assert 1.999 < table.loc["server", "certified"] <= 2
        assert (table["audited"] <= table["certified"]).all()


@pytest.mark.usefixtures("_short")
def test_a_refuted_certificate_is_an_alarm_and_not_a_success(tmp_path, monkeypatch):
    clip_of_a_part(monkeypatch)
    done = run("audit", "--quick", *WORDS, "hydra.run.dir=here", cwd=tmp_path)
    assert done.returncode == 1
    assert "fedpriv: ALARM: ULDP-SGD, released model, user: at least" in done.stderr
    assert (tmp_path / "here" / "audit.csv").exists()


@pytest.mark.parametrize(
    ("word", "line"),
    [
        ("--colluding=0", "--colluding=0: a positive number"),
        ("--colluding=9", "--colluding=9: at most 1"),
        ("--colluding=many", "--colluding=many: a positive number"),
        ("algo=missing", "missing"),
    ],
)
def test_a_mistake_is_one_line(word, line, tmp_path):
    told = refusal("audit", *WORDS, word, cwd=tmp_path)
    assert line in told
    assert "Traceback" not in told
    assert not list(tmp_path.iterdir())
