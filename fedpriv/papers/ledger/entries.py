"""The replication ledger: every figure, table and numbered statement of the papers, and how it is
judged.

A file `<paper>.yaml` beside this module has a paper's entries. An entry with a `replication` says,
before anything is run, what is run and which comparisons decide; `rule.py` has the rule.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cache
from importlib.resources import files
from itertools import product
from typing import Any

import yaml

PAPERS = ("uldp_fl", "hu", "huang", "lowy", "secured_fl", "study")
"""The files, in the order of the pages. `study` has comparisons that no paper makes."""
QUESTIONS = {
    "curve": "does the curve or number reproduce",
    "conclusion": "does the conclusion hold at equal effort and equal certificate",
    "statement": "is it valid as printed",
}
ANSWERS = ("yes", "no", "not resolved", "not run")
SAME = ("data", "length", "tuning")
QUANTIFIERS = ("every", "most", "mean", "close")


@dataclass(frozen=True)
class Answer:
    """The answer to one question.

    answer: one of `ANSWERS`.
    found: why; numbers of a replication stand on the page of the ledger instead.
    tests: names of the tests that check it, as pytest writes them.
    """

    answer: str
    found: str
    tests: tuple[str, ...] = ()


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
    places: tuple[str, ...] = ()
    questions: tuple[str, ...] = ()


@dataclass(frozen=True)
class Case:
    """What answers one question.

    words: overrides of its runs.
    grid: overrides with several values each, tried on the tuning seeds; empty: nothing is tuned,
        the experiment's own settings count.
    own: by method, overrides of its runs alone.
    """

    words: tuple[str, ...] = ()
    grid: tuple[str, ...] = ()
    own: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


@dataclass(frozen=True)
class Replication:
    """The runs that decide an entry.

    experiment: name in conf/experiment.
    words: overrides of all runs.
    places: overrides with several values; each combination is a place of its own.
    methods: by name, alternative lists of overrides; the best alternative by `chosen_by` counts.
    cases: by question.
    grids: by method, the overrides that replace those with the same key in every case's grid.
    chosen_by: metric whose mean over the tuning seeds is made small.
    tuning_seeds, seeds: the seeds that choose, and the others, which decide.
    comparisons: the claims.
    hours: processor hours, estimated before the run.
    """

    experiment: str
    methods: Mapping[str, tuple[tuple[str, ...], ...]]
    cases: Mapping[str, Case]
    seeds: tuple[int, ...]
    comparisons: tuple[Comparison, ...]
    words: tuple[str, ...] = ()
    places: tuple[str, ...] = ()
    grids: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    chosen_by: str = "train_loss"
    tuning_seeds: tuple[int, ...] = ()
    hours: float = 0.0

    def alternatives(self, question: str, method: str) -> list[list[str]]:
        """A method's alternative overrides."""
        own = self.cases[question].own.get(method, ())
        return [[*words, *own] for words in self.methods[method]]

    def grid(self, question: str, method: str) -> tuple[str, ...]:
        """The tuning grid of a method."""
        own = {word.partition("=")[0]: word for word in self.grids.get(method, ())}
        usual = {word.partition("=")[0]: word for word in self.cases[question].grid}
        return tuple(own.get(key, word) for key, word in usual.items())


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
    authors: what the authors' program does differently, as far as it is known.
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
    numbers: tuple[Number, ...] = ()
    replication: Replication | None = None
    hours: float | None = None

    @property
    def paper(self) -> str:
        """The file that it stands in."""
        paper, slash, _ = self.name.partition("/")
        return paper if slash else "study"


@cache
def entries() -> dict[str, Entry]:
    """All entries, by name."""
    found = {}
    for paper in PAPERS:
        text = (files("fedpriv.papers.ledger") / f"{paper}.yaml").read_text()
        for name, known in yaml.safe_load(text).items():
            entry = _entry(name if "/" in name or paper == "study" else f"{paper}/{name}", known)
            found[entry.name] = entry
    return found


def of_paper(paper: str) -> list[Entry]:
    """A paper's entries."""
    return [entry for entry in entries().values() if entry.paper == paper]


def _entry(name: str, known: Mapping[str, Any]) -> Entry:
    given = dict(known)
    answers = {key: _answer(name, given.pop(key)) for key in QUESTIONS if key in given}
    run = given.pop("replication", None)
    same = given.pop("same", {})
    unknown = {*given} - {one.name for one in fields(Entry)} or {*same} - {*SAME}
    if unknown or not answers:
        raise ValueError(f"{name}: {', '.join(sorted(unknown)) or 'no answer'}")
    return Entry(
        name=name,
        answers=answers,
        same={key: str(value) for key, value in same.items()},
        numbers=tuple(Number(**each) for each in given.pop("numbers", ())),
        replication=_replication(run) if run else None,
        **given,
    )


def _answer(name: str, known: Mapping[str, Any]) -> Answer:
    answer = Answer(**{**known, "tests": tuple(known.get("tests", ()))})
    if answer.answer not in ANSWERS:
        raise ValueError(f"{name}: answer {answer.answer}: allowed: {', '.join(ANSWERS)}")
    return answer


def _replication(known: Mapping[str, Any]) -> Replication:
    given = dict(known)
    methods = {
        name: tuple(tuple(words) for words in alternatives)
        for name, alternatives in given.pop("methods").items()
    }
    cases = {question: _case(case or {}) for question, case in given.pop("cases").items()}
    comparisons = tuple(
        Comparison(**{**each, **{key: tuple(each.get(key, ())) for key in ("places", "questions")}})
        for each in given.pop("comparisons")
    )
    given["grids"] = {name: tuple(words) for name, words in given.get("grids", {}).items()}
    for key in ("words", "places", "tuning_seeds", "seeds"):
        given[key] = tuple(given.get(key, ()))
    found = Replication(methods=methods, cases=cases, comparisons=comparisons, **given)
    _check(found)
    return found


def _case(known: Mapping[str, Any]) -> Case:
    given = dict(known)
    own = {method: tuple(words) for method, words in given.pop("own", {}).items()}
    return Case(**{key: tuple(words) for key, words in given.items()}, own=own)


def _check(run: Replication) -> None:
    for one in run.comparisons:
        known = {one.first, one.second} <= {*run.methods}
        if not known or one.says not in ("lower", "higher") or one.quantifier not in QUANTIFIERS:
            raise ValueError(f"{run.experiment}: {one}")
    if set(run.seeds) & set(run.tuning_seeds) or not {*run.cases} <= {*QUESTIONS}:
        raise ValueError(f"{run.experiment}: seeds that choose must not decide; cases {run.cases}")
    if any(case.grid for case in run.cases.values()) and not run.tuning_seeds:
        raise ValueError(f"{run.experiment}: a grid needs tuning seeds")
    for question, method in product(run.cases, run.methods):
        alternatives, grid = run.alternatives(question, method), run.grid(question, method)
        if len(alternatives) > 1 and not grid:
            raise ValueError(f"{run.experiment}: {method} has alternatives, and no grid to choose")
        for words in alternatives:
            keys = [word.partition("=")[0] for word in (*words, *grid, *run.places)]
            if twice := sorted({key for key in keys if keys.count(key) > 1}):
                raise ValueError(f"{run.experiment}: {method} sets {twice[0]} twice")


def combinations(words: Sequence[str]) -> int:
    """How many runs a list of overrides with several values makes, for each seed."""
    number = 1
    for word in words:
        number *= len(word.partition("=")[2].split(","))
    return number
