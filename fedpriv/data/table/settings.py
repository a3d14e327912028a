"""What the settings say about a table."""

from __future__ import annotations

from dataclasses import dataclass, field, fields

from fedpriv.data.base import DataSet
from fedpriv.data.table.schema import PROBLEMS, SURVIVAL
from fedpriv.data.table.written import DECIMALS
from fedpriv.errors import require
from fedpriv.models.tasks import CLASS_METRICS

USER, RECORD = SPLITS = ("user", "record")
TABLE, SILO = SCOPES = ("table", "silo")
"""Where a user's name means one person: in the whole table, or in one silo."""
REFUSE, MERGE, KEEP = SIMILAR = ("refuse", "merge", "keep")
"""What happens to names that may mean the same."""
FILL, DROP, ACCEPT = "fill", "drop", "accept"
"""What happens to cells that do not fit, if they are not refused."""
MISSING_MARKS = (
    *("NA", "N/A", "n/a", "#N/A", "<NA>", "NaN", "nan", "-nan", "NaT", "NULL", "null", "None"),
    *("?", ".", "#NULL!"),
)
"""Texts that stand for a missing value in what pandas, R, Excel, SAS, SPSS and UCI write."""
IN_THE_SCHEMA = (
    *("label", "time", "event", "user", "silo", "problem", "drop", "categories", "day_first"),
)
"""Keys that a schema file replaces."""
LARGEST_WEIGHT = 1e6
"""Largest weight of a class, so that losses and their gradients are numbers of single precision."""


def require_one_of(settings: object, **allowed: tuple[str | None, ...]) -> None:
    """Raise ConfigError for the first setting with another value than those allowed."""
    for name, values in allowed.items():
        shown = ", ".join("null" if one is None else one for one in values)
        require(getattr(settings, name) in values, f"data.{name}", getattr(settings, name), shown)


def require_owners(user: str | None, silo: str | None, scope: str, *, alone: bool) -> None:
    """Raise ConfigError unless the keys of a table say whose its rows are.

    alone: whether every row is another person.
    """
    column = "the column that says whose record it is, or data.one_row_per_user=true"
    allowed = column if user is None else "null, or data.one_row_per_user=false"
    require((user is None) == alone, "data.user", user or "null", allowed)
    allowed = "table, because there is no data.silo"
    require(silo is not None or scope == TABLE, "data.user_scope", scope, allowed)


@dataclass(frozen=True)
class ReadingRules:
    """How cells are written, and what happens to features that do not fit.

    missing: missing features: fill, refuse or drop (the row).
    outside: values outside public lists and ranges: refuse, or accept (in no category; cut to the
        range).
    missing_marks: more texts that stand for a missing value, beside an empty cell and
        `MISSING_MARKS`.
    separator: sign between two cells; None: comma, semicolon, tab or bar, as in the first line.
    decimal: sign before decimals, point or comma; None: read off the table, or the schema's.
    encoding: of a CSV file.
    """

    missing: str = FILL
    outside: str = REFUSE
    missing_marks: list[str] = field(default_factory=list)
    separator: str | None = None
    decimal: str | None = None
    encoding: str = "utf-8"

    def __post_init__(self) -> None:
        require_one_of(
            self,
            missing=(REFUSE, FILL, DROP),
            outside=(REFUSE, ACCEPT),
            decimal=(None, *DECIMALS),
        )
        single = self.separator is None or (len(self.separator) == 1 and self.separator != '"')
        require(single, "data.separator", self.separator, "one sign, or null")

    @property
    def rules(self) -> ReadingRules:
        """These alone."""
        return ReadingRules(**{one.name: getattr(self, one.name) for one in fields(ReadingRules)})


@dataclass(frozen=True)
class TableColumns(DataSet):
    """Records of a table with a column for the label, for the user and for the silo.

    root: folder that relative paths start from; None: the current folder.
    path: the table, CSV or Parquet (.parquet); None: the data frame of `fedpriv.run(frame=...)`.
    schema: a schema file, which replaces label, time, event, user, silo, problem, drop, categories
        and day_first.
    schema_digest: SHA-256 that the schema file must have; None: any.
    label: column to predict; for survival, whether the event happened (0 or 1).
    time: for survival, column of the time to the event or to the end of the observation.
    event: for survival, the label's text for an event that happened; None: yes, true, t or 1, and
        2 where the other one is 1.
    user: column that says whose record it is, for example the patient.
    silo: column that says who holds it, for example the hospital; None: no silos.
    one_row_per_user: there is no such column, because every row is another person.
    user_scope: table (a name is one person in all silos) or silo (in each silo another person).
    similar_ids: names, and classes, that may mean the same, such as "7" and "07": refuse, merge or
        keep.
    rare: classes that hardly any row has, which may be typing errors: refuse, keep or drop (the
        rows; a rare category becomes none).
    problem: regression, classification or survival; None: read off the label.
    metric: main metric of classification: auc, average_precision, balanced_accuracy or accuracy.
    class_weights: public factor of each class's loss, in the order of the classes; empty: all count
        alike.
    groups: columns of categories whose groups have metrics of their own in utility.csv.
    drop: columns that are left out.
    categories: columns of categories although they contain numbers, or many different texts.
    day_first: whether 03/04/2020 is in April; None: read off the column.
    incomplete: rows without label, user or silo: refuse or drop.
    test: a table of test records with the same columns; None: users are split.
    test_share: share of the users in the test part, by a coin of each.
    split: user (nobody is on both sides) or record (every record has its own coin; a test table may
        contain users who train).
    """

    path: str | None = None
    schema: str | None = None
    schema_digest: str | None = None
    label: str | None = None
    time: str | None = None
    event: str | None = None
    user: str | None = None
    silo: str | None = None
    one_row_per_user: bool = False
    user_scope: str = TABLE
    similar_ids: str = REFUSE
    rare: str = REFUSE
    problem: str | None = None
    metric: str = "auc"
    class_weights: list[float] = field(default_factory=list)
    groups: list[str] = field(default_factory=list)
    drop: list[str] = field(default_factory=list)
    categories: list[str] = field(default_factory=list)
    day_first: bool | None = None
    incomplete: str = REFUSE
    test: str | None = None
    test_share: float = 0.2
    split: str = USER

    def __post_init__(self) -> None:
        require_one_of(
            self,
            user_scope=SCOPES,
            similar_ids=SIMILAR,
            rare=(REFUSE, KEEP, DROP),
            problem=(None, *PROBLEMS),
            metric=CLASS_METRICS,
            incomplete=(REFUSE, DROP),
            split=SPLITS,
        )
        sound = all(1 / LARGEST_WEIGHT <= one <= LARGEST_WEIGHT for one in self.class_weights)
        allowed = f"numbers from {1 / LARGEST_WEIGHT:g} to {LARGEST_WEIGHT:g}"
        require(sound, "data.class_weights", self.class_weights, allowed)
        inside = 0 < self.test_share < 1
        require(inside, "data.test_share", self.test_share, "a share between 0 and 1")
        if self.schema is None:
            self._require_roles()
            return
        for name in IN_THE_SCHEMA:
            value = getattr(self, name)
            require(not value, f"data.{name}", value, "null, because data.schema says it")

    def _require_roles(self) -> None:
        """Raise ConfigError for what does not fit together without a schema."""
        pinned = self.schema_digest
        require(pinned is None, "data.schema_digest", pinned, "null without data.schema")
        require(self.label is not None, "data.label", "null", "the column to predict")
        survives = self.problem == SURVIVAL or (self.problem is None and self.time is not None)
        fits = survives == (self.time is not None)
        allowed = f"{'a column' if survives else 'null'}, because data.problem={self.problem}"
        require(fits, "data.time", self.time, allowed)
        require_owners(self.user, self.silo, self.user_scope, alone=self.one_row_per_user)


@dataclass(frozen=True)
class TableSettings(ReadingRules, TableColumns):
    """What the settings say about a table: `TableColumns`, then `ReadingRules`."""

    def __post_init__(self) -> None:
        ReadingRules.__post_init__(self)
        TableColumns.__post_init__(self)
