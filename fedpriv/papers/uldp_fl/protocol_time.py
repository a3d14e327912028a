"""Processor seconds of private weighting by phase (Uldp-FL, Figs 11 and 12), beside python-paillier
used as published.

Every job of the experiment runs here, in one process, so that each party's part can be timed apart:
a silo's, on average over the silos, and the server's. python-paillier's part, one power and one sum
for every user and parameter, an encryption a user and a decryption a parameter, is timed in the
same process on a slice and scaled.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import pandas as pd

from fedpriv.aggregation.base import SERVER, Respond, SiloProtocol
from fedpriv.aggregation.private_weighting.aggregation import PrivateWeighting
from fedpriv.engines.base import Engine, Returned, Sent, Session
from fedpriv.engines.inprocess import InProcessSession, answer
from fedpriv.papers.quick_profiles import profile_words
from fedpriv.parties.party import Mail, Memory, Party, PartySpec
from fedpriv.reports.canvas import Axes, Figure, plt
from fedpriv.reports.number_table import write_table
from fedpriv.rounds.query import Broadcast, Contributions, Query, SetUp, Update
from fedpriv.rounds.weighting import Weighting
from fedpriv.settings.compose import CommandLine, compose_jobs, without_hydra
from fedpriv.settings.experiment import Experiment, build
from fedpriv.settings.help import conf_dir

KEYS, BLINDING, TRAINING, WEIGHTING, DECRYPTION = PHASES = (
    "key exchange",
    "histogram blinding",
    "local training",
    "encrypted weighting",
    "server",
)
PHE = {"weighting, python-paillier": WEIGHTING, "server, python-paillier": DECRYPTION}
BLINDING_STEP = 4
"""The set-up's messages before this step agree on keys."""
SLICE = 16
USUAL = {"users": 20, "parameters": 16}
"""The paper's, in Fig. 12, where nothing else is said."""
SETTING = ["data", "users", "silos", "parameters"]


@dataclass
class Seconds:
    """Processor seconds of one exchange: by party and step, and of these the silos' for local
    training."""

    steps: dict[tuple[str, int], float] = field(default_factory=dict)
    training: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Timed(Engine):
    """One process that notes who took how many processor seconds in which step of which
    exchange.
    """

    exchanges: list[Seconds] = field(default_factory=list)

    def open(self, specs: Mapping[str, PartySpec], memories: Mapping[str, Memory]) -> Session:
        return TimedSession(specs, memories, self.exchanges)


class TimedSession(InProcessSession):
    """Adds an entry to `exchanges` for each exchange."""

    def __init__(
        self,
        specs: Mapping[str, PartySpec],
        memories: Mapping[str, Memory],
        exchanges: list[Seconds],
    ) -> None:
        super().__init__(specs, memories)
        self.exchanges = exchanges
        self.step = 0

    def begin(self, tasks: Mapping[str, Any]) -> None:
        super().begin(tasks)
        self.exchanges.append(Seconds())
        self.step = 0

    def wake(self, mail: Mapping[str, Mail | None]) -> dict[str, Sent | Returned | None]:
        answers: dict[str, Sent | Returned | None] = {}
        for name in sorted(mail):
            since = time.process_time()
            answers[name] = answer(self.parties[name], mail[name])
            self.exchanges[-1].steps[name, self.step] = time.process_time() - since
        self.step += 1
        return answers


@dataclass(frozen=True)
class TimedWeighting(PrivateWeighting):
    """Private weighting in a `Timed` process, which also notes what local training takes."""

    exchanges: list[Seconds] = field(default_factory=list)

    def silo(self, name: str, silos: tuple[str, ...], weighting: Weighting) -> SiloProtocol:
        return TimedSilo(name, super().silo(name, silos, weighting), self.exchanges)


@dataclass
class TimedSilo(SiloProtocol):
    """A silo's protocol; the contributions that it asks for are timed while they are made."""

    name: str
    protocol: SiloProtocol
    exchanges: list[Seconds]

    def setup(self, task: SetUp, counts: np.ndarray) -> Party:
        return self.protocol.setup(task, counts)

    def query(self, query: Query, respond: Respond) -> Party:
        def timed(broadcast: Broadcast) -> Update:
            update = respond(broadcast)
            return replace(update, blocks=self._timed(update.blocks), ahead=None)

        return self.protocol.query(query, timed)

    def _timed(self, blocks: Iterator[Contributions]) -> Iterator[Contributions]:
        training = self.exchanges[-1].training
        while True:
            since = time.process_time()
            block = next(blocks, None)
            training[self.name] = training.get(self.name, 0.0) + time.process_time() - since
            if block is None:
                return
            yield block


def by_phase(setup: Seconds, queries: list[Seconds]) -> dict[str, float]:
    """Seconds of each phase from the set-up and, on average, from the queries; a silo's are
    averaged over the silos."""

    def silos(steps: dict[tuple[str, int], float], wanted: Callable[[int], bool]) -> float:
        names = {name for name, _ in steps} - {SERVER}
        return sum(
            spent for (name, step), spent in steps.items() if name in names and wanted(step)
        ) / len(names)

    def server(steps: dict[tuple[str, int], float], wanted: Callable[[int], bool]) -> float:
        return sum(
            spent for (name, step), spent in steps.items() if name == SERVER and wanted(step)
        )

    halves = {KEYS: lambda step: step < BLINDING_STEP, BLINDING: lambda step: step >= BLINDING_STEP}
    phases = {
        phase: silos(setup.steps, wanted) + server(setup.steps, wanted)
        for phase, wanted in halves.items()
    }
    training = [sum(query.training.values()) / len(query.training) for query in queries]
    whole = [silos(query.steps, lambda step: True) for query in queries]
    phases[TRAINING] = float(np.mean(training))
    phases[WEIGHTING] = float(np.mean(np.subtract(whole, training)))
    phases[DECRYPTION] = float(
        np.mean([server(query.steps, lambda step: True) for query in queries])
    )
    return phases


def measure(exp: Experiment) -> dict[str, float]:
    """Seconds of each phase of one job on private weighting, python-paillier's included."""
    from fedpriv.runtime import prepare

    exchanges: list[Seconds] = []
    weighting = cast("PrivateWeighting", exp.aggregation)
    timed = replace(
        exp,
        engine=Timed(exchanges),
        aggregation=TimedWeighting(**vars(weighting), exchanges=exchanges),
    )
    with prepare(timed) as prepared:
        state = prepared.state
        for number in range(1, exp.options.rounds + 1):
            state = prepared.run_round(prepared.queries(number), state).state
        held = float(np.mean([len(data.users) for data in prepared.silo_data]))
    setup, *queries = exchanges
    users = exp.federation.n_users
    size = exp.federation.n_parameters
    pair, encryption, decryption = phe_seconds(weighting.key_bits)
    phe = dict(zip(PHE, (held * size * pair, users * encryption + size * decryption)))
    return by_phase(setup, queries) | phe


def phe_seconds(key_bits: int) -> tuple[float, float, float]:
    """What python-paillier takes for a parameter of a user, positive and negative in equal parts,
    for an encryption and for a decryption."""
    from phe import EncodedNumber, EncryptedNumber, generate_paillier_keypair

    public, private = generate_paillier_keypair(n_length=key_bits)
    since = time.process_time()
    ciphertext = EncryptedNumber(public, public.raw_encrypt(secrets.randbelow(public.n)))
    encryption = time.process_time() - since
    # Encode(delta) r_u n_su C_LCM modulo n is as long as n; the library inverts the base for the
    # upper third.
    exponents = [secrets.randbelow(public.n // 3) for _ in range(SLICE // 2)]
    exponents += [public.n - exponent for exponent in exponents]
    since = time.process_time()
    total = ciphertext
    for exponent in exponents:
        total = total + ciphertext * EncodedNumber(public, exponent, 0)
    pair = (time.process_time() - since) / SLICE
    since = time.process_time()
    private.raw_decrypt(total.ciphertext())
    return pair, encryption, time.process_time() - since


def run(name: str, folder: Path, profile: str) -> pd.DataFrame:
    """Every job of experiment `name`, one after the other; writes protocol_time.csv into
    `folder`.
    """
    words = [f"experiment={name}", *profile_words(name, profile)]
    rows: list[dict[str, Any]] = []
    for config in compose_jobs(CommandLine.parse(words), conf_dir()):
        exp = build(without_hydra(config))
        sizes = exp.federation
        setting = (
            config.hydra.runtime.choices.data,
            sizes.n_users,
            sizes.n_silos,
            sizes.n_parameters,
        )
        for phase, seconds in measure(exp).items():
            rows.append(
                {
                    **dict(zip(SETTING, setting)),
                    "seed": exp.options.seed,
                    "phase": phase,
                    "seconds": seconds,
                }
            )
    folder.mkdir(parents=True, exist_ok=True)
    write_table(folder / "protocol_time.csv", list(rows[0]), (row.values() for row in rows))
    return pd.DataFrame(rows)


def phases(table: pd.DataFrame, out: Path) -> None:
    """Fig. 11: a group of bars for each data set and number of users."""
    groups = list(dict.fromkeys(table[SETTING].itertuples(index=False, name=None)))
    names = [*PHASES, *PHE]
    figure, axis = plt.subplots(figsize=(10, 4.8), layout="constrained")
    width = 0.8 / len(names)
    for place, phase in enumerate(names):
        parts = [
            table[(table[SETTING] == group).all(axis=1) & (table["phase"] == phase)]["seconds"]
            for group in groups
        ]
        heights = [part.mean() for part in parts]
        errors = [part.std(ddof=0) for part in parts]
        x = np.arange(len(groups)) + (place - (len(names) - 1) / 2) * width
        look: dict[str, Any] = {"color": _color(phase), "alpha": 0.5 if phase in PHE else 1.0}
        look["hatch"] = "//" if phase in PHE else None
        bars = axis.bar(
            x, heights, width, yerr=errors if max(errors) else None, label=_name(phase), **look
        )
        axis.bar_label(bars, [f"{height:.2g}" for height in heights], fontsize=6, padding=1)
    labels = [
        f"{data}\n{users} users, {silos} silos, {size} parameters"
        for data, users, silos, size in groups
    ]
    axis.set_xticks(range(len(groups)), labels, fontsize=8)
    axis.set(yscale="log", ylabel="processor seconds")
    _finish(figure, [axis], table, out=out)


def growth(table: pd.DataFrame, out: Path) -> None:
    """Fig. 12: seconds against parameters and against users, the other at the paper's usual number
    and at its most."""
    figure, axes = plt.subplots(2, 2, figsize=(10, 8), layout="constrained", sharey=True)
    for column, (across, fixed) in zip(axes.T, (("parameters", "users"), ("users", "parameters"))):
        for axis, value in zip(column, (USUAL[fixed], table[fixed].max())):
            here = table[table[fixed] == value]
            for phase in [*PHASES, *PHE]:
                curve = (
                    here[here["phase"] == phase]
                    .groupby(across)["seconds"]
                    .agg(["mean", "std"])
                    .fillna(0.0)
                )
                style = "--" if phase in PHE else "-"
                axis.plot(
                    curve.index,
                    curve["mean"],
                    style,
                    marker=".",
                    color=_color(phase),
                    label=_name(phase),
                )
                low = curve["mean"] - curve["std"]
                high = curve["mean"] + curve["std"]
                axis.fill_between(curve.index, low, high, color=_color(phase), alpha=0.2, lw=0)
            axis.set(xlabel=across, yscale="log", title=f"{value} {fixed}")
            axis.set_xticks(sorted(here[across].unique()))
    for axis in axes[:, 0]:
        axis.set_ylabel("processor seconds")
    _finish(figure, [*axes.flat], table, out=out)


def _color(phase: str) -> str:
    return f"C{PHASES.index(PHE.get(phase, phase))}"


def _name(phase: str) -> str:
    return {KEYS: f"{KEYS} (once)", BLINDING: f"{BLINDING} (once)"}.get(phase, phase)


def _finish(figure: Figure, axes: Sequence[Axes], table: pd.DataFrame, *, out: Path) -> None:
    for axis in axes:
        axis.grid(alpha=0.3, axis="y")
    handles, labels = axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, ncol=4, fontsize=8, loc="outside upper center")
    seeds = table["seed"].nunique()
    note = (
        f"seconds a round, but for what happens once; mean over silos and {seeds} "
        f"seed{'s' * (seeds > 1)}; "
    )
    figure.supxlabel(
        f"{note}python-paillier timed on {SLICE} pairs of user and parameter and scaled", fontsize=7
    )
    figure.savefig(out, dpi=150)
    plt.close(figure)
