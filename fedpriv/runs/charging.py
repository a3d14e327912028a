"""What a run charges to the ledger of its data set (`ledger=FILE`).

A run that would not fit is refused before any data are loaded. A process charges each round before
its first message, under a name that no other process has, some rounds at once. At its end, however
that comes, it gives back those that it has not begun. A killed process gives nothing back, and
nobody else can: no folder of a run says what may come back. So no round is uncharged, and none is
charged twice unless it was begun twice or its process was killed.
"""

from __future__ import annotations

import json
import math
import secrets
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from fedpriv.accountants.charges import Charge
from fedpriv.accountants.events import Event
from fedpriv.errors import ConfigError, FedprivError, require
from fedpriv.ledgers.data_ledger import BeyondBudgetError, DataLedger
from fedpriv.ledgers.entries import Balance, Population, Texts, charge_entry, settle_entry
from fedpriv.rounds.query import Query
from fedpriv.runs.epsilon_forecast import EpsilonForecast
from fedpriv.settings.experiment import Experiment
from fedpriv.util.durable_files import replace_file
from fedpriv.util.logs import LOGGER
from fedpriv.util.untrusted_files import as_type, read_json, readable

LEDGER = "ledger.json"
"""In the folder of a run: where and under which name it is charged, and how its ledger stood."""
PARTS = 20
"""In about so many parts a run is charged: each reads the whole ledger, and a killed process loses
the rest of one."""


@dataclass(frozen=True)
class LedgerState:
    """How the ledger of a run stood when its last process ended, or began if it was killed.

    ledger: its name.
    run: the name under which the process is charged.
    population: whom the run concerns.
    unit: what the budget protects.
    budget: epsilon at `delta`.
    delta: of the budget.
    spent: epsilon of all runs.
    entries: number of lines.
    digest: of the last line.
    """

    ledger: str
    run: str
    population: str
    unit: str
    budget: float
    delta: float
    spent: float
    entries: int
    digest: str

    @staticmethod
    def find(folder: Path) -> LedgerState | None:
        """The state in the folder of a run; None: no ledger has paid for it. Raises FedprivError
        for a file that cannot be read."""
        path = folder / LEDGER
        with readable(path):
            return as_type(LedgerState, read_json(path)) if path.exists() else None


@dataclass
class LedgerCharge:
    """The charge of one process of a run.

    path: of the ledger.
    run: name of the process.
    population: whom it concerns.
    observer: against whom.
    words: what the run does, for readers of the ledger.
    planned: what all its rounds cost.
    paid: what is charged.
    started: rounds that were begun, at most what is charged.
    folder: of the run; None: it is not there yet.
    """

    path: Path
    run: str
    population: Population
    observer: str
    words: str
    planned: Texts
    paid: Texts = field(default_factory=Counter)
    started: Texts = field(default_factory=Counter)
    folder: Path | None = None

    def begin(self, queries: Iterable[Query]) -> None:
        """Charge the queries of a round before its first message, unless they are paid for. Raises
        BeyondBudgetError if the budget does not allow it."""
        unit = self.population.unit
        events = (query.seen_by(self.observer, unit) for query in queries)
        own = Counter(_text(self.observer, seen, self.run) for seen in events if seen)
        if lacking := self.started + own - self.paid:
            ahead = math.ceil(self.planned.total() / (PARTS * own.total())) - 1
            try:
                self._pay(lacking + Counter({text: ahead * count for text, count in own.items()}))
            except BeyondBudgetError:
                self._pay(lacking)
        self.started += own

    def _pay(self, texts: Texts) -> None:
        with DataLedger(self.path) as ledger:
            ledger.add(self.entry(texts))
        self.paid += texts

    def entry(self, texts: Texts) -> dict[str, Any]:
        """The line that charges these."""
        about = {"observer": self.observer, "words": self.words}
        return charge_entry(self.run, self.population.name, **about, texts=texts)

    def settle(self) -> None:
        """Give back what was not begun. What cannot be given back stays charged."""
        try:
            with DataLedger(self.path) as ledger:
                ledger.add(settle_entry(self.run, self.started))
            self.write(ledger.balance)
        except (FedprivError, OSError) as error:
            LOGGER.warning("%s: all planned rounds stay charged (%s)", self.path, error)

    def place(self, folder: Path) -> None:
        """Note in the folder of the run where it is charged."""
        self.folder = folder
        self.write(DataLedger.seen(self.path))

    def write(self, balance: Balance) -> None:
        """Write how the ledger stands into the run's folder, if there is one."""
        if self.folder is None:
            return
        population = balance.populations[self.population.name]
        state = LedgerState(
            ledger=balance.name,
            run=self.run,
            population=population.name,
            unit=population.unit,
            budget=population.budget.epsilon,
            delta=population.budget.delta,
            spent=balance.spent(population.name),
            entries=balance.entries,
            digest=balance.digest,
        )
        content = json.dumps(asdict(state), indent=2) + "\n"
        replace_file(self.folder / LEDGER, content.encode())


@contextmanager
def charged(
    experiment: Experiment, folder: Path, *, resume: bool, completed: int, earlier: int
) -> Iterator[LedgerCharge | None]:
    """Context of a process that runs rounds after `completed`, which the ledger of its settings
    pays for; None if the settings name no ledger.

    folder: of the run.
    resume: whether there was an earlier process.
    earlier: rounds that earlier processes have begun, each as often as it was.

    Raises FedprivError, before any data are loaded, if a budget does not allow the rounds.
    """
    options = experiment.options
    before = LedgerState.find(folder) if resume else None
    if options.ledger is None:
        if before is not None:
            known = f"the file of ledger {before.ledger}, which has paid for {folder} so far"
            raise ConfigError("ledger", "null", known)
        yield None
        return
    path = Path(options.ledger)
    unpaid = earlier if before is None else 0
    allowed = f"null: {folder} has begun {unpaid} rounds that no ledger was charged for"
    require(not unpaid, "ledger", path, allowed)
    # Read twice: the plan may take long, and other runs are charged meanwhile.
    charge = _plan(experiment, path, DataLedger.seen(path), completed)
    with DataLedger(path) as ledger:
        balance = ledger.balance
    if before is not None:
        _note_killed(balance, folder, before)
    if charge.planned:
        balance.lines(charge.entry(charge.planned))  # written nowhere
        if full := balance.exceeded(charge.population.name):
            raise _refusal(experiment, charge, balance, full, completed)
    if resume:
        charge.place(folder)
    try:
        yield charge
    finally:
        if charge.paid:
            charge.settle()


def _require_certificate(experiment: Experiment, population: Population) -> None:
    """Raise ConfigError for settings whose epsilon takes something private as given."""
    allowed = "an allocator of the users that the data name; this one invents them"
    real = population.unit != "user" or not experiment.allocator.invents_users
    require(real, "allocator", type(experiment.allocator).__name__, allowed)
    for text in experiment.data.read_without_noise:
        raise ConfigError("ledger", experiment.options.ledger, f"null, because no epsilon: {text}")


def _plan(experiment: Experiment, path: Path, balance: Balance, completed: int) -> LedgerCharge:
    """What the rounds after `completed` cost. Raises ConfigError without a certificate."""
    name = experiment.options.population
    names = ", ".join(balance.populations)
    if name is None and len(balance.populations) == 1:
        [name] = balance.populations
    require(name in balance.populations, "population", name, f"one of {path}: {names}")
    population = balance.populations[str(name)]
    _require_certificate(experiment, population)
    forecast = EpsilonForecast.of(experiment)
    charge = LedgerCharge(
        path,
        f"{path.stem}-{secrets.token_hex(8)}",
        population,
        experiment.algo.headline_observer,
        f"{experiment.algo.label} on {type(experiment.data).__name__}",
        Counter(),
    )
    charge.planned = _planned(forecast, charge, completed, experiment.options.rounds)
    return charge


def _planned(forecast: EpsilonForecast, charge: LedgerCharge, after: int, until: int) -> Texts:
    last = forecast.exp.algo.last_round(forecast.plan.federation) or until
    if after >= min(until, last):
        return Counter()
    population = charge.population
    costs = forecast.cost.charges(after, min(until, last), unit=population.unit)
    if math.isinf(population.budget.spent(costs)):
        allowed = f"a method with a certificate for each {population.unit}"
        raise ConfigError("algo", type(forecast.exp.algo).__name__, f"{allowed} ({charge.path})")
    return Counter(
        {
            _text(charge.observer, cost.events, charge.run): count
            for cost, count in costs.items()
            if cost.events
        }
    )


def _text(observer: str, events: tuple[Event, ...], run: str) -> str:
    """A charge as a text. Scopes are parts of the data in this run alone."""
    scoped = any(event.scope for event in events)
    return Charge(observer, events, run if scoped else "").text


def _note_killed(balance: Balance, folder: Path, before: LedgerState) -> None:
    """Say what stays charged of the last process of the run, if it was killed. Raises ConfigError
    for another ledger than it had."""
    known = f"{before.ledger}, as in {folder / LEDGER}"
    require(before.ledger == balance.name, "ledger", balance.path, known)
    run = balance.runs.get(before.run)
    if run is not None and not run.settled:
        number = run.texts.total()
        LOGGER.warning("%s: %d queries of a killed process stay charged", balance.path, number)


def _refusal(
    experiment: Experiment,
    charge: LedgerCharge,
    balance: Balance,
    full: Population,
    completed: int,
) -> FedprivError:
    """Why a run is not paid for, in one line with what would be.

    balance: with the charge.
    full: the population whose budget it exceeds.
    """
    total, budget = balance.spent(full.name), full.budget.epsilon
    paid = balance.texts[charge.population.name] - charge.planned

    def fits(planned: Texts) -> bool:
        balance.texts[charge.population.name] = paid + planned
        return balance.exceeded(charge.population.name) is None

    hint = _fitting(experiment, charge, completed, fits)
    fits(Counter())
    more = math.ceil(1000 * (total - budget)) / 1000
    return FedprivError(
        f"ledger={charge.path}: epsilon {balance.left(full.name):.3g} of {budget:g} is left for "
        f"{full.name} ({full.unit}), and the run would spend {total - budget:.3g} more than that; "
        f"{hint}fedpriv ledger grant {charge.path} {full.name} {more:g} allows it"
    )


def _fitting(
    experiment: Experiment,
    charge: LedgerCharge,
    completed: int,
    fits: Callable[[Texts], bool],
) -> str:
    """A target with which the run would fit, in words; "": none was found."""
    asked = experiment.accountant.target or math.inf
    for share in (0.95, 0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2, 0.1):
        target = float(f"{charge.population.budget.epsilon * share:.2g}")
        if target >= asked:
            continue
        accountant = replace(experiment.accountant, budget=None, target=target)
        with suppress(ConfigError):
            forecast = EpsilonForecast.of(replace(experiment, accountant=accountant))
            if fits(_planned(forecast, charge, completed, experiment.options.rounds)):
                return f"accountant.target={target:g} fits, or "
    return ""
