"""Decide a claim of a paper: `fedpriv replicate paper/figure ...`.

`fedpriv reproduce` draws a figure. `fedpriv replicate` spends the compute that its entry in the
ledger asks for: it tunes every method alike on some seeds, runs the chosen settings on others,
keeps the value of every seed in results/ledger/, and answers by the rule of docs/papers/rule.md.
Runs and a figure are in outputs/replicate/. Started again, it resumes. Without names it lists the
entries.
"""

from __future__ import annotations

from pathlib import Path
from pkgutil import resolve_name

import pandas as pd

from fedpriv.errors import FedprivError
from fedpriv.papers.ledger import figures, results
from fedpriv.papers.ledger.entries import QUESTIONS, Entry, entries
from fedpriv.papers.ledger.sweeps import replicate
from fedpriv.settings.words import near
from fedpriv.util.parsers import Parser
from fedpriv.util.printing import say

RUNS = Path("outputs") / "replicate"
PROGRAMS = {
    "secured_fl/fig6": "fedpriv.papers.secured_fl.peer_groups:count_by_run",
    "uldp_fl/fig11": "fedpriv.papers.uldp_fl.protocol_time:hospitals",
    "uldp_fl/fig12": "fedpriv.papers.uldp_fl.protocol_time:growing_sizes",
}
"""Functions that yield the rows of entries that no sweep measures."""


def main(words: list[str]) -> None:
    """Replicate the entries that the command line names, or list all of them.

    Raises FedprivError for an entry that does not exist, or that has nothing to run.
    """
    parser = Parser("fedpriv replicate", description=__doc__)
    parser.add_argument("names", nargs="*", help="entries of the ledger")
    args = parser.parse_args(words)
    known = entries()
    for name in args.names:
        if name not in known:
            raise FedprivError(f"{name}: no such entry; {near(name, known)}see fedpriv replicate")
        if not _runs(known[name]):
            runnable = [entry.name for entry in known.values() if _runs(entry)]
            raise FedprivError(f"{name}: nothing to run; allowed: {', '.join(runnable)}")
    if not args.names:
        say("\n".join(_line(entry) for entry in known.values()))
    for name in args.names:
        _replicate(known[name])


def _runs(entry: Entry) -> bool:
    return entry.replication is not None or entry.name in PROGRAMS


def _replicate(entry: Entry) -> None:
    folder = RUNS / entry.name
    if entry.replication is None:
        table = pd.DataFrame(resolve_name(PROGRAMS[entry.name])(say))
    else:
        table = replicate(entry.replication, folder, say)
    results.write(entry.name, table)
    folder.mkdir(parents=True, exist_ok=True)
    figures.draw(entry, table, folder / "figure.pdf")
    if entry.replication:
        _print(entry, table)
    say(folder / "figure.pdf")
    say(results.path(entry.name))


def _print(entry: Entry, table: pd.DataFrame) -> None:
    """Print what the table decides."""
    assert entry.replication is not None
    for question in entry.replication.cases:
        decisions = results.decide(entry, question, table)
        found = results.decided_answer(entry, question, decisions)
        say(f"\n{entry.name}: {QUESTIONS[question]}: {found}")
        for decision in decisions:
            one = decision.comparison
            say(
                f"  {one.first} {one.says} {one.metric} than {one.second} after {one.round} "
                f"rounds, {one.quantifier}: {decision.answer}"
            )
            for each in decision.found:
                say(
                    f"    {each.place or 'all'}: {each.first:.4g} and {each.second:.4g}, "
                    f"difference {each.mean:+.4g} ({each.low:+.4g} to {each.high:+.4g}), "
                    f"corrected p {each.holm:.2g}, {each.seeds} seeds"
                )


def _line(entry: Entry) -> str:
    answers = ", ".join(f"{question}: {one.answer}" for question, one in entry.answers.items())
    mark = "*" if _runs(entry) else " "
    return f"{mark} {entry.name}: {answers}"
