"""Write the ledger's tables into the pages: `python -m scripts.ledger`.

A paper's answers stand between `<!-- ledger: paper -->` and `<!-- /ledger -->` on its page.
docs/papers/ledger.md has counts, the papers' numbers and all comparisons; README.md has counts;
docs/papers/gallery.md shows the figures. Every number comes from results/ledger/ or from the
ledger.

`python -m scripts.ledger hu/fig6` prints an entry's comparisons place by place, and the settings
that were chosen. It writes nothing.
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from pathlib import Path

import pandas as pd

from fedpriv.papers.ledger import figures, results
from fedpriv.papers.ledger.entries import (
    ANSWERS,
    PAPERS,
    QUESTIONS,
    Entry,
    Number,
    entries,
    of_paper,
)
from fedpriv.papers.ledger.results import DECIDING
from scripts import ledger_epsilons
from scripts.ledger_comparisons import RESULTS, compared, details, ranges

ROOT = Path(__file__).resolve().parents[1]
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
PLACES = {name: ROOT / "docs" / "papers" / f"{name}.md" for name in TITLES}
LEDGER = ROOT / "docs" / "papers" / "ledger.md"
GALLERY = ROOT / "docs" / "papers" / "gallery.md"
OF_RECORDS = "uldp_fl/fig4_group"
"""The entry whose noise depends on private records."""
WITHOUT_EPSILONS = (OF_RECORDS, "uldp_fl/fig4_gap")
"""Entries without a picture of epsilons; the second one's are those of Fig. 4."""
PICTURES = ROOT / "docs" / "assets" / "replications"


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


def counts() -> str:
    """How many answers each page has, of each kind."""
    lines = ["| answers | counts |", "| --- | --- |"]
    lines += [
        f"| [{TITLES[paper][0]}]({paper}.md) | {count(of_paper(paper))} |" for paper in PAPERS
    ]
    return "\n".join(lines)


def answers(paper: str) -> str:
    """A paper's entries: the claim, three answers, why, what differs from the paper, and once what
    is known of the authors' program."""
    lines = ["| entry | the paper says | curve | conclusion | as printed | found here |"]
    lines.append("| --- " * 6 + "|")
    told = {""}
    for entry in of_paper(paper):
        cells = (_short(entry, question) for question in QUESTIONS)
        why = "; ".join(dict.fromkeys(one.found for one in entry.answers.values() if one.found))
        if here := _here(entry):
            why += f" (Here: {here}.)"
        if entry.authors not in told:
            told.add(entry.authors)
            why += f" (The authors' program: {entry.authors}.)"
        lines.append(
            f"| `{entry.name}`, {entry.place} | {entry.claim} | {' | '.join(cells)} | {why} |"
        )
    return "\n".join(lines)


def _here(entry: Entry) -> str:
    """What of data, length and tuning is not the paper's; hours that a run would take."""
    paper = re.compile("(yes|none|the paper's settings|the authors' .*|.* as in the paper|)")
    parts = [text for text in entry.same.values() if not paper.fullmatch(text)]
    if entry.hours is not None and any(one.answer == "not run" for one in entry.answers.values()):
        parts.append(f"not run, {entry.hours:g} hours")
    return "; ".join(part.removeprefix("no: ") for part in parts)


def numbers() -> str:
    """The papers' numbers beside ours."""
    lines = ["| entry | number | paper | here |", "| --- | --- | --- | --- |"]
    lines += [
        f"| `{entry.name}` | {one.what} | {one.paper} | {ours(entry, one) or 'not measured'} |"
        for entry in entries().values()
        for one in entry.numbers
    ]
    return "\n".join(lines)


def ours(entry: Entry, number: Number) -> str:
    """Our number: from the entry, or computed from its results."""
    table = results.read(results.path(entry.name, RESULTS))
    rows = table[table["phase"] == DECIDING]
    if number.ours or rows.empty:
        return number.ours
    if entry.paper == "lowy":
        other = "Local SGD" if "Local SGD" in number.what else "MB-SGD"
        found = (
            f"{100 * _gain(rows[rows['question'] == question], other):+.1f} % ({words})"
            for question, words in (
                ("curve", "the paper's noise"),
                ("conclusion", "equal certificates"),
            )
        )
        epsilons = rows["place"].nunique()
        return f"this figure, {epsilons} epsilons: {', '.join(found)}"
    if entry.name == "secured_fl/fig6":
        place = f"size=3, peers={number.what.split()[-2]}"
        counts = rows[(rows["place"] == place) & (rows["method"] == "with rollback")]["value"]
        return f"{counts.min():g} to {counts.max():g} in {len(counts)} runs"
    where: dict[str, object] = {"method": "tau=40", "metric": "train_loss", "round": 40}
    where["place"] = "algo.noise_multiplier=0.0005"
    losses = rows[(rows[[*where]] == pd.Series(where)).all(axis=1)].groupby("settings")["value"]
    found = (f"{one.mean():.3f} ± {one.std():.3f}" for _, one in losses)
    return f"with steps 0.5, 1.5 and 4: {', '.join(found)}"


def _gain(rows: pd.DataFrame, other: str) -> float:
    """SPIDER's last error relative to another method's, minus one; mean over epsilons."""
    last = rows[(rows["round"] == rows["round"].max()) & (rows["metric"] == "error")]
    means = last.pivot_table(index="place", columns="method", values="value")
    return float((means["SPIDER"] / means[other] - 1).mean())


def _short(entry: Entry, question: str) -> str:
    one = entry.answers.get(question)
    return f"**{one.answer}**" if one else ""


def pages() -> dict[Path, str]:
    """The correct text of every page with a table."""
    readme = ROOT / "README.md"
    found = {readme: _between(readme.read_text(), "papers", "papers", papers())}
    for name, path in PLACES.items():
        found[path] = _between(path.read_text(), f"ledger: {name}", "ledger", answers(name))
    text = LEDGER.read_text()
    for mark, content in (("counts", counts()), ("numbers", numbers()), ("compared", compared())):
        text = _between(text, mark, mark, content)
    found[LEDGER] = text
    found[GALLERY] = _between(GALLERY.read_text(), "gallery", "gallery", gallery())
    return found


def _between(text: str, opening: str, closing: str, content: str) -> str:
    pattern = re.compile(rf"(<!-- {opening} -->\n).*?(<!-- /{closing} -->)", re.DOTALL)
    if len(pattern.findall(text)) != 1:
        raise ValueError(f"a page needs one place <!-- {opening} -->")
    return pattern.sub(lambda match: f"{match[1]}{content}\n{match[2]}", text)


def gallery() -> str:
    """The figures of all replications."""
    parts = []
    for entry in measured_entries():
        picture = f"../assets/replications/{picture_name(entry)}"
        parts.append(
            f"## {entry.name}\n\n[Answers]({entry.paper}.md#answers)."
            f"{spent(entry)}\n\n![{entry.name}]({picture})"
        )
        if has_epsilons(entry):
            path = f"../assets/replications/{epsilons_name(entry)}"
            parts.append(f"![epsilons of {entry.name}]({path})")
    return "\n\n".join(parts)


def spent(entry: Entry) -> str:
    """The epsilons of groups of records after the last round, which depend on the records."""
    if entry.name != OF_RECORDS:
        return ""
    rows = results.read(results.path(entry.name, RESULTS))
    numbers = (f"{name} {ranges(rows, name)}" for name in ("certified", "claimed"))
    return f" Epsilon after the last round: {'; '.join(numbers)}."


def has_epsilons(entry: Entry) -> bool:
    """Whether a picture shows epsilons round by round: those of Uldp-FL, as in the paper."""
    return (
        entry.paper == "uldp_fl"
        and entry.name not in WITHOUT_EPSILONS
        and entry.replication is not None
    )


def epsilons_name(entry: Entry) -> str:
    return f"{entry.name.replace('/', '_')}_epsilon.png"


def measured_entries() -> list[Entry]:
    """The entries with results."""
    return [entry for entry in entries().values() if results.path(entry.name, RESULTS).exists()]


def picture_name(entry: Entry) -> str:
    return f"{entry.name.replace('/', '_')}.png"


def main(names: list[str]) -> None:
    """Print the comparisons of the entries that are named; without names, write the pages."""
    for name in names:
        print(details(entries()[name]))
    if names:
        return
    PICTURES.mkdir(exist_ok=True)
    for entry in measured_entries():
        table = results.read(results.path(entry.name, RESULTS))
        figures.draw(entry, table, PICTURES / picture_name(entry))
        if has_epsilons(entry) and entry.replication:
            ledger_epsilons.draw(entry.replication, PICTURES / epsilons_name(entry))
    for path, text in pages().items():
        path.write_text(text)


if __name__ == "__main__":
    main(sys.argv[1:])
