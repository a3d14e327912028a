"""`fedpriv certify`: exit codes, outputs, and that it loads no torch."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from claim_examples import DP_SGD, changed

from fedpriv.claims.command import main
from fedpriv.errors import ConfigError, DataError, FedprivError


def written(folder, **values):
    path = folder / "claim.yaml"
    path.write_text(yaml.safe_dump(changed(DP_SGD, **values)))
    return str(path)


def code(*args):
    try:
        main(list(args))
    except SystemExit as end:
        return end.code
    return 0


@pytest.mark.parametrize(
    ("values", "words", "expected"),
    [
        ({}, [], 0),
        ({}, ["--budget", "4"], 0),
        ({}, ["--budget", "3"], 1),
        ({"claims__0__epsilon": 1.0}, [], 1),
        ({"releases__0__clip": "unknown"}, [], 1),
        ({"claims": "unknown"}, [], 1),
    ],
)
def test_exit_codes(tmp_path, capsys, values, words, expected):
    assert code(written(tmp_path, **values), *words) == expected
    assert ("exceeds the budget of 3" in capsys.readouterr().err) == ("3" in words)


@pytest.mark.parametrize("budget", ["0", "-1", "nan", "inf", "x", "1_0", "\uff11"])
def test_a_wrong_budget_is_refused(tmp_path, budget):
    with pytest.raises(ConfigError, match="budget"):
        main([written(tmp_path), f"--budget={budget}"])


def test_bad_files_end_in_one_line(tmp_path):
    with pytest.raises(DataError, match=r"releases\.0\.clip=-1"):
        main([written(tmp_path, releases__0__clip=-1)])
    with pytest.raises(FedprivError, match="name a claim file"):
        main([])


@pytest.mark.parametrize("words", [["--schema"], ["--draft"]])
def test_no_claim_passes_without_a_verdict(tmp_path, words):
    with pytest.raises(ConfigError, match=f"{words[0]} judges no claim"):
        main([*words, written(tmp_path, claims__0__epsilon=1.0)])


@pytest.mark.parametrize("kind", ["pipe", "link", "below a link"])
def test_a_claim_is_a_file_of_its_own(tmp_path, monkeypatch, kind):
    """A pipe would hang, and a link shows words of the file that it leads to."""
    monkeypatch.chdir(tmp_path)
    place = Path("below/claim.yaml" if kind == "below a link" else "claim.yaml")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "claim.yaml").write_text("password of mine")
    if kind == "pipe":
        os.mkfifo(place)
    elif kind == "link":
        place.symlink_to("mine/claim.yaml")
    else:
        Path("below").symlink_to("mine")
    with pytest.raises(
        DataError, match=r"claim\.yaml: .*(symbolic link|not a regular file)"
    ) as said:
        main([str(place)])
    assert "password" not in str(said.value)


def test_a_page_replaces_a_link_and_not_its_file(tmp_path, capsys):
    (tmp_path / "mine").write_text("keep")
    (tmp_path / "page.html").symlink_to(tmp_path / "mine")
    assert code(written(tmp_path), "--html", str(tmp_path / "page.html")) == 0
    assert (tmp_path / "mine").read_text() == "keep"
    assert "DP-SGD" in (tmp_path / "page.html").read_text()


def test_a_page_replaces_no_claim(tmp_path):
    path = written(tmp_path)
    with pytest.raises(ConfigError, match="--html"):
        main(["--html", path, path])
    assert code(path) == 0


def test_several_claims_have_one_code(tmp_path):
    (tmp_path / "one").mkdir()
    good, bad = written(tmp_path), written(tmp_path / "one", claims__0__epsilon=1.0)
    wrong = tmp_path / "wrong.yaml"
    wrong.write_text("schema: fedpriv-claim/2")
    assert code(good, good, "--json") == 0
    assert code(good, bad) == code(bad, good, "--json") == 1
    for files in ([bad, str(wrong)], [str(wrong), good]):
        with pytest.raises(DataError, match="schema"):
            main(files)


def test_json_and_html_carry_no_markup_of_the_claim_and_infinity_as_text(tmp_path, capsys):
    page = tmp_path / "page.html"
    name = "<script>alert(1)</script> [red]"
    assert code(written(tmp_path, name=name), "--json", "--html", str(page)) == 0
    [report] = json.loads(capsys.readouterr().out)
    assert report["name"] == name
    found = {row["observer"]: row["verdict"] for row in report["findings"]}
    assert found == {"released model": "", "server": "holds", "client": ""}
    assert "<script>" not in page.read_text()
    assert code(written(tmp_path, name=name, complete=False)) == 1
    assert "[red]" in capsys.readouterr().out
    assert code(written(tmp_path, claims="unknown", complete=False), "--json") == 1
    [report] = json.loads(capsys.readouterr().out)
    assert report["findings"][0]["certified"] == "inf"


def test_torch_is_not_loaded(tmp_path):
    program = (
        "import sys; from fedpriv.claims.command import main; main(sys.argv[1:]); "
        "assert not {'torch', 'opacus', 'pandas', 'matplotlib'} & set(sys.modules)"
    )
    words = [sys.executable, "-c", program, written(tmp_path), "--json"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_a_draft_has_a_question_for_each_field(tmp_path, capsys):
    """From nothing to a verdict in two commands."""
    main(["--draft"])
    claim = tmp_path / "claim.yaml"
    claim.write_text(capsys.readouterr().out)
    assert code(str(claim)) == 1
    said = capsys.readouterr().out
    assert "no certificate" in said
    assert "claims.0.adjacency: which neighbours" in said
    assert "releases.0.clip: the bound" in said
