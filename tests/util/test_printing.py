"""What a stranger's file says is printed at one place, and controls no terminal."""

import ast
import io
import json
import logging
from pathlib import Path

import pytest
from command import run
from fake_runs import fake_run, finished_status
from rich.table import Table

import fedpriv
from fedpriv.util.consoles import HarmlessConsole
from fedpriv.util.logs import LOGGER, RUN_LOG, logged
from fedpriv.util.printing import printable, say

ROOT = Path(fedpriv.__file__).parent
EVIL = "\x1b[2J\x1b]0;title\x07\x9b31m\u202egnp\u2066\u200b\x08\r[link=file:///etc]x[/link]:smile:"
SIGNS = {"\x1b", "\x07", "\x9b", "\u202e", "\u2066", "\u200b", "\x08", "\r"}
SEAM = {"util/printing.py": {"print"}, "util/consoles.py": set()}


def test_all_lines_and_tables_are_printed_at_the_seam():
    found = {}
    for path in sorted(ROOT.rglob("*.py")):
        tree = ast.parse(path.read_text())
        calls = [node.func for node in ast.walk(tree) if isinstance(node, ast.Call)]
        names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
        written = {
            ast.unparse(func)
            for func in calls
            if isinstance(func, ast.Attribute) and "sys.std" in ast.unparse(func)
        }
        built = {func.id for func in calls if isinstance(func, ast.Name)} & {"Console"}
        used = (
            built
            | (names & {"print", "pprint"})
            | {line for line in written if line.endswith(("write", "writelines"))}
        )
        if used - SEAM.get(str(path.relative_to(ROOT)), set()):
            found[str(path.relative_to(ROOT))] = used
    assert not found


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("µ ± 3, naïve, 日本", "µ ± 3, naïve, 日本"),
        ("two\nlines\tand a tab", "two\nlines\tand a tab"),
        ("\x1b[31mred", "\\x1b[31mred"),
        ("\u202eabc", "\\u202eabc"),
        ("\ud800", "\\ud800"),
        ("a\x00b\x7f", "a\\x00b\\x7f"),
    ],
)
def test_signs_that_nobody_sees_are_escaped(text, shown):
    assert printable(text) == shown
    assert printable(shown) == shown


def test_lines_tables_and_logs_control_nothing(capsys, tmp_path):
    say(EVIL)
    console = HarmlessConsole()
    console.file = shown = io.StringIO()
    table = Table(EVIL, title=EVIL)
    table.add_row(EVIL)
    console.print(table, EVIL)
    with logged(tmp_path):
        LOGGER.log(logging.WARNING, "lost %s", EVIL)
    for text in (capsys.readouterr().out, shown.getvalue(), (tmp_path / RUN_LOG).read_text()):
        assert not SIGNS & set(text)
        assert "\\x1b[2J" in text
        assert ":smile:" in text


def test_rich_may_still_write_in_bold(monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")
    console = HarmlessConsole()
    console.file = shown = io.StringIO()
    console.print("[1/2]", style="bold")
    assert "\x1b[1m[1/2]" in shown.getvalue()


@pytest.mark.parametrize("key", ["state", "label", "metric", "simulated"])
def test_tables_figures_and_reports_of_a_hostile_folder_control_nothing(key, tmp_path):
    folder = tmp_path / "sweep" / "0"
    fake_run(folder, "AVG", [0.1, 0.2], (1.0, None))
    values = finished_status("AVG") | {key: EVIL}
    (folder / "status.json").write_text(json.dumps(values))
    (folder / ".hydra").mkdir()
    (folder / ".hydra" / "overrides.yaml").write_text(json.dumps([EVIL]))
    where = str(tmp_path / "sweep")
    for words in (("table", where), ("figure", where), ("report", where, "--figure")):
        done = run(*words, cwd=tmp_path)
        assert not SIGNS & set(done.stdout + done.stderr)
        assert "Traceback" not in done.stderr
