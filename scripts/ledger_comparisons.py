"""The comparisons that were run, as text: what was compared, under which settings, and the answers.

Every number comes from results/ledger/ or from the ledger.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import pandas as pd

from fedpriv.papers.ledger import results
from fedpriv.papers.ledger.entries import Entry, entries
from fedpriv.papers.ledger.results import DECIDING, TUNING, Decision
from fedpriv.papers.ledger.rule import LEVEL, side

RESULTS = Path(__file__).resolve().parents[1] / results.RESULTS


def compared() -> str:
    """A row for each comparison that was run, and for each question what it found, and over which
    settings, if they are not those of the row above."""
    lines = [
        "| entry | the first than the second | curve | conclusion | settings |",
        "| --- " * 5 + "|",
    ]
    above = ""
    for entry in entries().values():
        found: dict[str, dict[str, str]] = {}
        over: dict[str, str] = {}
        for question, decisions in decisions_of(entry):
            over[question] = _settings(entry, question)
            for one in decisions:
                found.setdefault(_claim(one), {})[question] = _found(one)
        for claim, cells in found.items():
            shown = (cells.get(question, "") for question in ("curve", "conclusion"))
            settings = "; ".join(dict.fromkeys(over[question] for question in cells))
            told = "" if settings == above else settings
            lines.append(f"| `{entry.name}` | {claim} | {' | '.join(shown)} | {told} |")
            above = settings
    return "\n".join(lines)


def _settings(entry: Entry, question: str) -> str:
    """Over which settings an answer was found: its sensitivity to what the paper leaves open."""
    run = entry.replication
    assert run is not None
    table = results.read(results.path(entry.name, RESULTS))
    here = table[table["question"] == question]
    if any(run.grid(question, method) for method in run.methods):
        tried = here[here["phase"] == TUNING]
        seeds = tried["seed"].nunique()
        by = run.chosen_by or " and ".join(sorted(tried["metric"].unique()))
        text = f"tuned by {by.replace('_', ' ')}, {seeds} seed{'s' * (seeds > 1)}"
        return text + ", part of the grid" * entry.same.get("tuning", "").startswith("part")
    if run.open:
        values = _values(here["settings"]).items()
        listed = [f"{_keys(f'{key}=')}{_numbers(own)}" for key, own in values]
        return f"left open: {'; '.join(sorted(listed))}" if listed else "one step size, 1 of 3"
    return "the authors'"


def _found(decision: Decision) -> str:
    """The least and the largest difference, or the interval of a single one; sides; an answer."""
    found = decision.found
    means = dict.fromkeys(f"{end(one.mean for one in found):+.3g}" for end in (min, max))
    interval = f" ({found[0].low:+.3g} to {found[0].high:+.3g})" if len(found) == 1 else ""
    sides = Counter(side(decision.comparison, one) for one in found)
    places = ", ".join(f"{number} {word}" for word, number in sides.items())
    answer = "" if decision.answer == "not run" else f": **{decision.answer}**"
    return f"{' to '.join(means)}{interval}; {places}{answer}"


def details(entry: Entry) -> str:
    """An entry's comparisons at each place with intervals, and the settings that were chosen."""
    table = results.read(results.path(entry.name, RESULTS))
    return "\n\n".join(
        f"{entry.name}: {question}\n\n{_about(entry, question, table)}\n\n{_table(decisions)}"
        for question, decisions in decisions_of(entry)
    )


def decisions_of(entry: Entry) -> Iterator[tuple[str, list[Decision]]]:
    """By question, where something was run."""
    if entry.replication:
        table = results.read(results.path(entry.name, RESULTS))
        for question in entry.replication.cases:
            if found := results.decide(entry, question, table):
                yield question, found


def _claim(decision: Decision) -> str:
    one = decision.comparison
    metric = one.metric.replace("_", " ")
    if one.quantifier == "close":
        return f"{one.first} no worse than {one.second} by {one.margin:g} in {metric}"
    where = {"every": ", everywhere", "most": ", mostly", "mean": ", on average"}[one.quantifier]
    if len(decision.found) == 1 and one.quantifier != "mean":
        where = ""
    equal = f" (equal within {one.margin:g})" if one.margin else ""
    return f"{one.first} {one.says} than {one.second} in {metric}, round {one.round}{where}{equal}"


def _about(entry: Entry, question: str, table: pd.DataFrame) -> str:
    run = entry.replication
    assert run is not None
    parts = [f"Seeds that decide: {_seeds(run.seeds)}."]
    here = table[table["question"] == question]
    deciding = here[here["phase"] == DECIDING]
    if run.cases[question].grid:
        sizes = here[here["phase"] == TUNING].groupby("method")["settings"].nunique()
        tried = {
            str(method): _values(own["settings"])
            for method, own in here[here["phase"] == TUNING].groupby("method")
        }
        listed = ", ".join(f"{method} {sizes[method]}" for method in run.methods)
        parts.append(
            f"Settings tried for each place on seeds {_seeds(run.tuning_seeds)}: {listed}. Chosen "
            f"by {run.chosen_by.replace('_', ' ') or 'what each comparison judges'}: "
            f"{'; '.join(_chosen(deciding, tried))}."
        )
    parts.append(f"Certified epsilon: {ranges(deciding, 'certified')}.")
    return " ".join(parts)


def ranges(deciding: pd.DataFrame, column: str) -> str:
    """The range of an epsilon of the runs that decide, for each method."""
    ends = deciding.groupby("method", sort=False)[column].agg(["min", "max"])
    found = {
        method: " to ".join(dict.fromkeys(f"{end:.4g}" for end in row))
        for method, *row in ends.itertuples()
    }
    if len({*found.values()}) == 1:
        return f"{next(iter(found.values()))} for every method"
    return ", ".join(f"{method} {one}" for method, one in found.items())


def _seeds(seeds: Sequence[int]) -> str:
    return f"{seeds[0]} to {seeds[-1]}" if len(seeds) > 1 else str(seeds[0])


def _values(settings: Iterable[str]) -> dict[str, set[float]]:
    """The numbers that were tried, by key."""
    tried: dict[str, set[float]] = {}
    for word in {word for text in settings for word in text.split(", ")}:
        key, _, value = word.partition("=")
        if value[:1].isdigit():
            tried.setdefault(key, set()).add(float(value))
    return tried


def _numbers(values: Iterable[float]) -> str:
    return ", ".join(f"{one:g}" for one in sorted(values))


def _chosen(deciding: pd.DataFrame, tried: Mapping[str, Mapping[str, set[float]]]) -> list[str]:
    """The chosen settings of each method, with the places where there are several."""
    places = deciding.groupby(["method", "settings"], sort=False)["place"].unique().reset_index()
    return [
        f"{method} {_marked(settings, tried[method])}{f' at {_joined(at)}' if any(at) else ''}"
        for method, settings, at in places.itertuples(index=False)
    ]


def _marked(settings: str, tried: Mapping[str, set[float]]) -> str:
    """Settings, with an asterisk at numbers that are an end of what was tried."""
    parts = []
    for word in settings.split(", "):
        key, _, value = word.partition("=")
        numbers = tried.get(key, set())
        end = len(numbers) > 1 and float(value) in (min(numbers), max(numbers))
        parts.append(f"{_keys(word)}{'*' if end else ''}")
    return ", ".join(parts)


def _keys(text: str) -> str:
    """Settings or places, with the last part of each key."""
    return re.sub(r"[\w.]+\.(\w+=)", r"\1", text)


def _joined(places: Iterable[str]) -> str:
    return " and ".join(_keys(place) for place in places)


def _table(decisions: list[Decision]) -> str:
    lines = [
        "| claim | place | first | second | difference (95 % interval) | corrected p | "
        "found with 80 % chance | seeds | answer |",
        "| --- " * 9 + "|",
    ]
    for decision in decisions:
        for number, one in enumerate(decision.found):
            claim, said = (_claim(decision), decision.answer) if number == 0 else ("", "")
            p = "" if one.holm != one.holm else "< 0.001" if one.holm < 0.001 else f"{one.holm:.2g}"
            mark = "**" if one.holm < LEVEL else ""
            lines.append(
                f"| {claim} | {_keys(one.place)} | "
                f"{one.first:.4g} | {one.second:.4g} | {mark}{one.mean:+.3g}{mark} ({one.low:+.3g} "
                f"to {one.high:+.3g}) | {p} | {one.detectable:.2g} | {one.seeds} | "
                f"{said} |"
            )
    return "\n".join(lines)
