"""The replication ledger: every figure, table and numbered statement of the papers, and how it is
judged.

A file `<paper>.yaml` beside this module has a paper's entries. An entry with a `replication` says,
before anything is run, what is run and which comparisons decide; `rule.py` has the rule.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from typing import Any

import yaml

PAPERS = ("uldp_fl", "hu", "huang", "lowy", "secured_fl")
"""The files, in the order of the pages."""
QUESTIONS = {
    "curve": "does the curve or number reproduce",
    "conclusion": "does the conclusion hold at equal effort and equal certificate",
    "statement": "does it hold as printed",
}
ANSWERS = (
    *("reproduced", "tie", "reversed", "misprint", "refuted", "beyond our certificate"),
    *("unknown setting", "not resolved", "not run"),
)
"""docs/papers/rule.md has their meaning."""


@dataclass(frozen=True)
class Answer:
    """The answer to one question.

    answer: one of `ANSWERS`.
    found: why; numbers of a replication stand on the page of the ledger instead.
    tests: names of the tests that check it, as pytest writes them.
    """

    answer: str
    found: str
    tests: Sequence[str] = ()


@dataclass(frozen=True)
class Comparison:
    """A claim that one method does better than another, or as well.

    first, second: names of methods.
    metric: column of metrics.csv.
    round: when.
    says: "lower" or "higher", of the first method's metric.
    quantifier: at how many places the claim says so: "every", "most", "mean" (of all places), or
        "close": the first is nowhere worse by more than `margin`.
    margin: largest difference that does not matter, in units of the metric.
    places: settings that a place has, or their ends (`n_users=100`, `zipf`); empty: all places.
    questions: that it answers; empty: all of the entry's.
    """

    first: str
    second: str
    metric: str
    round: int
    says: str
    quantifier: str = "every"
    margin: float = 0.0
    places: Sequence[str] = ()
    questions: Sequence[str] = ()


@dataclass(frozen=True)
class Case:
    """What answers one question.

    words: overrides of its runs.
    grid: overrides with several values each, tried on the tuning seeds; empty: nothing is tuned,
        the experiment's own settings count.
    own: by method, overrides of its runs alone.
    beyond: whether our certificate decides it, and not the methods.
    """

    words: Sequence[str] = ()
    grid: Sequence[str] = ()
    own: Mapping[str, Sequence[str]] = field(default_factory=dict)
    beyond: bool = False


@dataclass(frozen=True)
class Replication:
    """The runs that decide an entry.

    experiment: name in conf/experiment.
    words: overrides of all runs.
    places: overrides with several values; each combination is a place of its own.
    methods: by name, alternative lists of overrides; the best alternative counts.
    cases: by question.
    grids: by method, the overrides that replace those with the same key in every case's grid.
    open: overrides with three plausible values each, of what the paper does not print and nothing
        tunes.
    chosen_by: metric whose mean after the last round chooses by the paper's own procedure, over the
        grid that it prints; empty: what a comparison judges chooses for it.
    tuning_seeds, seeds: the seeds that choose, and the others, which decide.
    comparisons: the claims.
    drawn: metrics that the figure shows beside those that are compared.
    """

    experiment: str
    methods: Mapping[str, Sequence[Sequence[str]]]
    cases: Mapping[str, Case]
    seeds: Sequence[int]
    comparisons: Sequence[Comparison]
    drawn: Sequence[str] = ()
    words: Sequence[str] = ()
    places: Sequence[str] = ()
    grids: Mapping[str, Sequence[str]] = field(default_factory=dict)
    open: Sequence[str] = ()
    chosen_by: str = ""
    tuning_seeds: Sequence[int] = ()

    @property
    def metrics(self) -> list[str]:
        """What is compared or drawn."""
        return list(dict.fromkeys([*(one.metric for one in self.comparisons), *self.drawn]))

    def alternatives(self, question: str, method: str) -> list[list[str]]:
        """A method's alternative overrides."""
        own = self.cases[question].own.get(method, ())
        return [[*words, *own] for words in self.methods[method]]

    def grid(self, question: str, method: str) -> Sequence[str]:
        """The tuning grid of a method."""
        own = by_key(self.grids.get(method, ()))
        return [own.get(key, word) for key, word in by_key(self.cases[question].grid).items()]

    def judged(self, question: str) -> list[Comparison]:
        """The comparisons that answer a question."""
        return [one for one in self.comparisons if question in (one.questions or (question,))]


@dataclass(frozen=True)
class Number:
    """A number that the paper prints.

    what: its meaning.
    paper: as printed.
    ours: here, with an interval where it is random; empty: not measured.
    """

    what: str
    paper: str
    ours: str = ""


@dataclass(frozen=True)
class Entry:
    """A figure, table or statement.

    name: `paper/figure`, as for `fedpriv reproduce` where it draws the figure.
    place: in the paper.
    claim: in the paper's sense.
    answers: by question; a question that does not apply is absent.
    authors: what the authors' program does, without the subject; a page has it once.
    same: "yes", "no", or in which part, for data, length and tuning; empty for statements.
    numbers: what the paper prints, beside ours.
    replication: the runs that decide; None where nothing is run.
    hours: processor hours that a run of the paper's length would take, for what is not run.
    """

    name: str
    place: str
    claim: str
    answers: Mapping[str, Answer]
    authors: str = ""
    same: Mapping[str, str] = field(default_factory=dict)
    numbers: Sequence[Number] = ()
    replication: Replication | None = None
    hours: float | None = None

    @property
    def paper(self) -> str:
        """The file that it stands in."""
        return self.name.partition("/")[0]


@cache
def entries() -> dict[str, Entry]:
    """All entries, by name."""
    found = {}
    for paper in PAPERS:
        text = (files("fedpriv.papers.ledger") / f"{paper}.yaml").read_text()
        for name, known in yaml.safe_load(text).items():
            found[f"{paper}/{name}"] = _entry(f"{paper}/{name}", **known)
    return found


def of_paper(paper: str) -> list[Entry]:
    """A paper's entries."""
    return [entry for entry in entries().values() if entry.paper == paper]


def _entry(
    name: str,
    *,
    replication: Mapping[str, Any] | None = None,
    numbers: Sequence[Mapping[str, str]] = (),
    **given: Any,
) -> Entry:
    answers = {key: Answer(**given.pop(key)) for key in QUESTIONS if key in given}
    return Entry(
        name=name,
        answers=answers,
        numbers=[Number(**each) for each in numbers],
        replication=_replication(**replication) if replication else None,
        **given,
    )


def _replication(
    *,
    cases: Mapping[str, Mapping[str, Any] | None],
    comparisons: Sequence[Mapping[str, Any]],
    **given: Any,
) -> Replication:
    return Replication(
        cases={question: Case(**(case or {})) for question, case in cases.items()},
        comparisons=[Comparison(**each) for each in comparisons],
        **given,
    )


def by_key(words: Iterable[str]) -> dict[str, str]:
    """Overrides by their keys; the last one of a key counts."""
    return {word.partition("=")[0]: word for word in words}


def combinations(words: Iterable[str]) -> int:
    """How many runs a list of overrides with several values makes, for each seed."""
    return math.prod(len(word.partition("=")[2].split(",")) for word in words)
