"""Mistakes planted by hand where one-token mutants are not run: tables, resume, sweeps, evaluation,
allocation and the command line. `python -m scripts.mutants --planted` runs them."""

from __future__ import annotations

import ast
from pathlib import Path

from scripts.mutants.mutate import Mutant

Edit = tuple[str, str]
"""A text that its file has once, and the mistake in its place."""

GROUPS = "reports/test_groups.py reports/test_summary.py"
REPORTS = "reports/test_report.py reports/test_summary.py"
FOLDERS = "runs/test_open_for_resume.py"

PLANTED: dict[str, tuple[str, tuple[Edit, ...]]] = {
    "fedpriv/reports/groups.py": (
        GROUPS,
        (
            ("sorted(unsorted, key=lambda run: run.seed)", "unsorted"),
            ("if one.seed == other.seed:", "if one.seed > other.seed:"),
            ('found.pop("data.root", None)', "pass"),
            ("RECORDS: run.status.identity.source[:SHOWN]", "RECORDS: 0"),
            ("CODE: run.status.identity.code[:SHOWN]", "CODE: 0"),
            ("if len(by_data) > 1:", "if len(by_data) > 2:"),
            ("if len(groups) > 1:", "if len(groups) > 2:"),
            ("return int(value) if whole else value", "return value"),
            ("sum(len(run.status.empty_rounds) for", "max(len(run.status.empty_rounds) for"),
        ),
    ),
    "fedpriv/reports/summary.py": (
        REPORTS,
        (
            ("summary for summary in alike if summary.n == most]", "summary for summary in alike]"),
            ("finals.mean(skipna=False)", "finals.mean()"),
            ('certified=max(float(row["certified"])', 'certified=min(float(row["certified"])'),
            ("label=min(run.status.metric_label", "label=max(run.status.metric_label"),
            ("sign = -1 if any(", "sign = 1 if any("),
            ("ddof=1)) if len(values)", "ddof=0)) if len(values)"),
            ("axis=1).dropna()", "axis=1).fillna(0)"),
        ),
    ),
    "fedpriv/reports/compare.py": (
        REPORTS,
        (
            ("both = sorted(one.keys() & other.keys())", "both = sorted(one.keys())"),
            ("[one[seed] - other[seed] for", "[other[seed] - one[seed] for"),
            ("np.maximum.accumulate(", "np.asarray("),
            ("np.arange(len(order), 0, -1) *", "len(order) *"),
        ),
    ),
    "fedpriv/reports/finished_runs.py": (
        REPORTS,
        (
            ('if status["state"] != "done":', 'if status["state"] == "failed":'),
            ('(units == "user").any()', "False"),
            ('{"certified": "min", "claimed": _max}', '{"certified": "max", "claimed": _max}'),
            ("values.max(skipna=False)", "values.max()"),
            ("self.metrics[metric].iloc[-1]", "self.metrics[metric].max()"),
        ),
    ),
    "fedpriv/runs/folder.py": (
        FOLDERS,
        (
            (" or journal.total < (saved.attempts if saved else 0)", ""),
            ("elif journal.total:", "elif False:"),
            ("completed | timed if synced else completed", "completed"),
            ("if lost := completed - timed:", "if lost := timed - completed:"),
            ("if table != EPSILON:", "if False:"),
            ("saved.check(place, origin)", "pass"),
        ),
    ),
    "fedpriv/runs/tables.py": (
        FOLDERS,
        (
            ("self._lines(table) if number <= round]", "self._lines(table) if number < round]"),
            ('for line in lines if line.endswith(b"\\n")]', "for line in lines]"),
            ("digest.update(content)", "pass"),
        ),
    ),
    "fedpriv/runs/stored_config.py": (
        FOLDERS,
        (
            ("if refused or jobs > 1 or line.multirun:", "if jobs > 1 or line.multirun:"),
            ("saved.round if saved else 0) if system", "saved.round if saved else 1) if system"),
            ("run.require_journal()", "pass"),
            ('or "rounds" not in tree:', 'and "rounds" not in tree:'),
        ),
    ),
    "fedpriv/runs/run_or_resume.py": (
        "runs/test_identity.py",
        (("_require_same_records(folder, experiment)", "pass"),),
    ),
    "fedpriv/runs/training_loop.py": (
        "runs/test_empty_rounds.py",
        (("if self.number == self._last:", "if False:"),),
    ),
    "fedpriv/runs/records.py": (
        "runs/test_empty_rounds.py",
        (('"empty": result.empty', '"empty": None'),),
    ),
    "fedpriv/models/tasks.py": (
        "models/test_tasks.py",
        (
            ("[present] / records[present]", " / np.maximum(records, 1)"),
            ("outputs[:, 0] > 0)", "outputs[:, 0] > 0.3)"),
            ("-outputs[:, 0], y[:, 0]", "outputs[:, 0], y[:, 0]"),
        ),
    ),
    "fedpriv/runtime/evaluation.py": (
        "runtime/test_evaluation.py",
        (
            ("weights.append(int(own.sum()))", "weights.append(1)"),
            ("self._mean_on(models, self.held_out)", "self._mean_on(models, self.test)"),
            ("records.silo == index", "records.silo != index"),
        ),
    ),
    "fedpriv/data/allocate.py": (
        "data/test_allocation.py",
        (
            ("np.bincount(self.silo[self.trains], m", "np.bincount(self.silo, m"),
            (
                "np.add.at(table, (self.silo[self.trains], self.user[self.trains]), 1)",
                "table[self.silo[self.trains], self.user[self.trains]] += 1",
            ),
        ),
    ),
    "fedpriv/data/shared.py": (
        "data/test_allocation.py",
        (
            ("part.x, part.y, part.silo, part.user)", "part.x, part.y)"),
            ("for part in parts for a", "for part in parts[:1] for a"),
            ("sorted(each)", "each"),
        ),
    ),
    "fedpriv/data/dealing.py": (
        "data/test_dealing.py",
        (
            ("** -alpha", "** alpha"),
            ("rng.permutation(n_owners)[np.arange(n) % n_owners]", "np.arange(n) % n_owners"),
            ("if has[:, label].any() else", "if not has[:, label].any() else"),
        ),
    ),
    "fedpriv/sweeps/lock_step.py": (
        "sweeps/test_lock_step.py",
        (
            ("self._at_once - len(going))", "self._at_once)"),
            ("islice(results, len(runner.works))", "results"),
        ),
    ),
    "fedpriv/settings/keys.py": (
        "settings/test_settings_keys.py",
        (
            ('found[f"mechanism.{name}"] = idle[name]', "pass"),
            ("elif used != asked:", "elif False:"),
            ("elif not mechanism.clips:", "elif False:"),
        ),
    ),
    "fedpriv/settings/compose.py": (
        "test_cli_words.py",
        (
            ("if swept and not line.multirun and config", "if False and config"),
            ("itertools.product(", "zip("),
        ),
    ),
    "fedpriv/cli.py": (
        "test_cli_words.py",
        (
            ("if args and args[0] in COMMANDS:", "if args and args[-1] in COMMANDS:"),
            ("and name not in OWN_HELP", ""),
        ),
    ),
}
"""By source file: the tests that should notice, below tests/, and the mistakes."""


def planted(root: Path) -> list[tuple[Mutant, tuple[str, ...]]]:
    """Each mistake, and its tests. Raises ValueError where a file does not have the text once."""
    found = []
    for path, (tests, edits) in PLANTED.items():
        text = (root / path).read_text()
        files = tuple(f"tests/{name}" for name in tests.split())
        for before, after in edits:
            if text.count(before) != 1:
                raise ValueError(f"{path} has {text.count(before)} times {before}")
            line = text[: text.index(before)].count("\n") + 1
            mutant = Mutant(
                path, _scope(text, line), line, before, after, text.replace(before, after)
            )
            found.append((mutant, files))
    return found


def _scope(text: str, line: int) -> str:
    """The dotted name of the function around a line."""
    scope = ""
    bodies: list[tuple[ast.AST, str]] = [(ast.parse(text), "")]
    while bodies:
        node, scope_of = bodies.pop()
        for child in ast.iter_child_nodes(node):
            name = scope_of
            if isinstance(child, ast.ClassDef | ast.FunctionDef):
                name = f"{scope_of}.{child.name}".lstrip(".")
                inside = child.lineno <= line <= (child.end_lineno or 0)
                scope = name if inside and len(name) > len(scope) else scope
            bodies.append((child, name))
    return scope or "module"
