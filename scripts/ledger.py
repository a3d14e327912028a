"""Write the ledger's tables into the pages: `python -m scripts.ledger`.

docs/papers/ledger.md has all of them; between `<!-- ledger: paper -->` and `<!-- /ledger -->` on a
paper's page and on the study's stand its answers, and between `<!-- papers -->` and `<!-- /papers
-->` in README.md how many there are. Every number comes from results/ledger/ or from the ledger.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from fedpriv.papers.ledger import results
from fedpriv.papers.ledger.entries import (
    ANSWERS,
    PAPERS,
    QUESTIONS,
    Entry,
    combinations,
    entries,
    of_paper,
)
from fedpriv.papers.ledger.results import TUNING, Decision, Row
from fedpriv.papers.ledger.rule import LEVEL

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / results.RESULTS
TITLES = {
    "uldp_fl": (
        "Uldp-FL",
        "(Kato et al., PVLDB 2024)",
        "`fedavg` `uldp_naive` `uldp_group` `uldp_sgd` `uldp_avg` `uldp_avg_w`, "
        "`aggregation=private_weighting`",
    ),
    "hu": (
        "Concentrated Differentially Private and Utility Preserving FL",
        "(Hu, Guo, Gong)",
        "`cdp_fedavg` `dp_sgd`, `aggregation=masked`",
    ),
    "huang": (
        "A Federated Algorithm for Privacy-Preserving ERM",
        "(Huang)",
        "`dp_erm`, `aggregation=secagg`",
    ),
    "lowy": (
        "Private Non-Convex FL Without a Trusted Server",
        "(Lowy, Ghafelebashi, Razaviyayn, AISTATS 2023)",
        "`prox_sgd` `prox_svrg` `prox_pl_svrg` `spider` `minibatch_sgd` `local_sgd`, "
        "`aggregation=shuffle`",
    ),
    "secured_fl": (
        "SecureD-FL",
        "(Jeon, Ferdous, Rahman, Walid)",
        "`secured_fl` `local_only`, `aggregation=admm`",
    ),
}
"""By page: title, authors, and names of methods."""
STUDY = "study"
PLACES = {name: ROOT / "docs" / "papers" / f"{name}.md" for name in TITLES} | {
    STUDY: ROOT / "docs" / "study.md"
}
LEDGER = ROOT / "docs" / "papers" / "ledger.md"


def papers() -> str:
    """README's table."""
    lines = ["| paper | methods | answers |", "| --- | --- | --- |"]
    for name, (title, authors, methods) in TITLES.items():
        lines.append(
            f"| [{title}](docs/papers/{name}.md) {authors} | {methods} | {count(of_paper(name))} |"
        )
    return "\n".join(lines)


def count(known: list[Entry]) -> str:
    """How many answers there are of each kind."""
    counts = Counter(one.answer for entry in known for one in entry.answers.values())
    return ", ".join(f"{counts[word]} {word}" for word in ANSWERS if counts[word])


def answers(paper: str) -> str:
    """A paper's entries: the claim, three answers, and why."""
    lines = ["| entry | the paper says | curve | conclusion | as printed | found here |"]
    lines.append("| --- " * 6 + "|")
    for entry in of_paper(paper):
        cells = (_short(entry, question) for question in QUESTIONS)
        why = list(dict.fromkeys(one.found for one in entry.answers.values() if one.found))
        if decisions := dict(_decisions(entry)):
            why = [_summary(decisions), *why]
        lines.append(
            f"| `{entry.name}`, {entry.place} | {entry.claim} | {' | '.join(cells)} | "
            f"{'; '.join(filter(None, why))} |"
        )
    return "\n".join(lines)


def grid() -> str:
    """All entries: three answers, and what is the same as in the paper."""
    parts = []
    for paper in PAPERS:
        lines = [
            "| entry | curve | conclusion | as printed | data | length | tuning | not run, hours |"
        ]
        lines.append("| --- " * 8 + "|")
        for entry in of_paper(paper):
            cells = [_short(entry, question) for question in QUESTIONS]
            same = [entry.same.get(key, "") for key in ("data", "length", "tuning")]
            waits = any(one.answer == "not run" for one in entry.answers.values())
            hours = f"{entry.hours:g}" if waits and entry.hours is not None else ""
            lines.append(f"| `{entry.name}` | {' | '.join([*cells, *same, hours])} |")
        title = TITLES[paper][0] if paper in TITLES else "Comparisons that no paper makes"
        parts.append(f"### {title}\n\n{count(of_paper(paper))}.\n\n" + "\n".join(lines))
    return "\n\n".join(parts)


def numbers() -> str:
    """The papers' numbers beside ours."""
    lines = ["| entry | number | paper | here |", "| --- | --- | --- | --- |"]
    lines += [
        f"| `{entry.name}` | {one.what} | {one.paper} | {one.ours or 'not measured'} |"
        for entry in entries().values()
        for one in entry.numbers
    ]
    return "\n".join(lines)


def measured() -> str:
    """Every comparison that was run, with intervals, and the settings that were chosen."""
    parts = []
    for entry in entries().values():
        for question, decisions in _decisions(entry):
            rows = results.read(results.path(entry.name, RESULTS))
            parts.append(
                f"### {entry.name}: {question}\n\n{_about(entry, question, rows)}\n\n"
                + _table(decisions)
            )
    return "\n\n".join(parts)


def _short(entry: Entry, question: str) -> str:
    one = entry.answers.get(question)
    return f"**{one.answer}**" if one else ""


def _decisions(entry: Entry) -> Iterator[tuple[str, list[Decision]]]:
    """By question, where something was run."""
    if entry.replication:
        rows = results.read(results.path(entry.name, RESULTS))
        for question in entry.replication.cases:
            if found := results.decide(entry, question, rows):
                yield question, found


def _summary(decisions: dict[str, list[Decision]]) -> str:
    """The answers of all comparisons, in a sentence for each question."""
    parts = []
    for question, found in decisions.items():
        said = (f"{_claim(one)}: {one.answer}" for one in found)
        parts.append(f"{question}: {'; '.join(said)}")
    return ". ".join(parts)


def _claim(decision: Decision) -> str:
    one = decision.comparison
    metric = one.metric.replace("_", " ")
    if one.quantifier == "close":
        return f"{one.first} no worse than {one.second} by {one.margin:g} in {metric}"
    where = {"every": "everywhere", "most": "mostly", "mean": "on average"}[one.quantifier]
    where = f" {where}" if len(decision.found) > 1 or one.quantifier == "mean" else ""
    return (
        f"{one.first} has a {one.says} {metric} than {one.second} after {one.round} rounds{where}"
    )


def _about(entry: Entry, question: str, rows: tuple[Row, ...]) -> str:
    run = entry.replication
    assert run is not None
    parts = [f"Seeds that decide: {_seeds(run.seeds)}."]
    if run.cases[question].grid:
        sizes = {
            method: sum(combinations(words) for words in alternatives)
            * combinations(run.grid(question, method))
            for method, alternatives in run.methods.items()
        }
        listed = ", ".join(f"{method} {number}" for method, number in sizes.items())
        parts.append(
            f"Settings tried for each place on seeds {_seeds(run.tuning_seeds)}: {listed}. Chosen "
            f"by {run.chosen_by.replace('_', ' ')}: {'; '.join(_chosen(question, rows))}."
        )
    certified = [row.certified for row in rows if row.question == question and row.phase != TUNING]
    if question == "conclusion":
        parts.append(f"Certified epsilon: {min(certified):.4g} to {max(certified):.4g}.")
    return " ".join(parts)


def _seeds(seeds: tuple[int, ...]) -> str:
    return f"{seeds[0]} to {seeds[-1]}" if len(seeds) > 1 else str(seeds[0])


def _chosen(question: str, rows: tuple[Row, ...]) -> list[str]:
    """The chosen settings of each method, with the places where there are several."""
    found: dict[tuple[str, str], list[str]] = {}
    for row in rows:
        if row.question == question and row.phase != TUNING:
            places = found.setdefault((row.method, row.settings), [])
            if row.place not in places:
                places.append(row.place)
    return [
        f"{method} {_keys(settings)}{f' at {_joined(places)}' if any(places) else ''}"
        for (method, settings), places in found.items()
    ]


def _keys(text: str) -> str:
    """Settings or places, with the last part of each key."""
    return re.sub(r"[\w.]+\.(\w+=)", r"\1", text)


def _joined(places: list[str]) -> str:
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


def pages() -> dict[Path, str]:
    """The correct text of every page with a table."""
    readme = ROOT / "README.md"
    found = {readme: _between(readme.read_text(), "papers", "papers", papers())}
    for name, path in PLACES.items():
        found[path] = _between(path.read_text(), f"ledger: {name}", "ledger", answers(name))
    text = LEDGER.read_text()
    for mark, content in (("grid", grid()), ("numbers", numbers()), ("measured", measured())):
        text = _between(text, mark, mark, content)
    found[LEDGER] = text
    return found


def _between(text: str, opening: str, closing: str, content: str) -> str:
    pattern = re.compile(rf"(<!-- {opening} -->\n).*?(<!-- /{closing} -->)", re.DOTALL)
    if len(pattern.findall(text)) != 1:
        raise ValueError(f"a page needs one place <!-- {opening} -->")
    return pattern.sub(lambda match: f"{match[1]}{content}\n{match[2]}", text)


if __name__ == "__main__":
    for path, text in pages().items():
        path.write_text(text)
