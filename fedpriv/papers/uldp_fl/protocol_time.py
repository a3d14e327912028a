"""Seconds of private weighting by phase (Uldp-FL, Figs 11 and 12), beside python-paillier.

Every job of the experiment runs in this process, so that each party can be timed: a silo, on
average over the silos, and the server. python-paillier is used as published: one power and one sum
for every user and parameter, an encryption for every user, a decryption for every parameter. It is
timed in the same process on a small part, and scaled.
"""

from __future__ import annotations

import math
import secrets
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import pandas as pd

from fedpriv.aggregation.base import SERVER, Respond, SiloProtocol
from fedpriv.aggregation.private_weighting.aggregation import PrivateWeighting
from fedpriv.engines.base import Engine, Returned, Sent, Session
from fedpriv.engines.inprocess import InProcessSession, answer
from fedpriv.papers.experiments import profile_words
from fedpriv.parties.party import Mail, Memory, Party, PartySpec
from fedpriv.reports.canvas import Axes, Figure, plot_band, plt, save
from fedpriv.reports.number_table import write_records
from fedpriv.rounds.local_job import LocalJob
from fedpriv.rounds.query import Broadcast, Query, SetUp
from fedpriv.rounds.weighting import Weighting
from fedpriv.settings.compose import CommandLine, compose_jobs
from fedpriv.settings.experiment import Experiment, build
from fedpriv.settings.help import conf_dir
from fedpriv.training.contributions import Contributions

KEYS, BLINDING, TRAINING, WEIGHTING, DECRYPTION = PHASES = (
    "key exchange",
    "histogram blinding",
    "local training",
    "encrypted weighting",
    "server",
)
PHE = {"weighting, python-paillier": WEIGHTING, "server, python-paillier": DECRYPTION}
BLINDING_STEP = 4
"""Steps of the set-up before this one exchange keys."""
SLICE = 16
"""Pairs of user and parameter that python-paillier is timed on."""
USUAL = {"users": 20, "parameters": 16}
"""The paper's usual values in Fig. 12."""
SETTING = ["data", "users", "silos", "parameters"]


@dataclass
class ExchangeTimes:
    """Processor seconds of one exchange.

    steps: by party and step.
    training: the part of each silo for local training.
    """

    steps: dict[tuple[str, int], float] = field(default_factory=dict)
    training: dict[str, float] = field(default_factory=dict)

    def seconds(self, *, server: bool, start: int = 0, stop: float = math.inf) -> float:
        """The server's time from step `start` to before `stop`, or a silo's on average."""
        mine = {key: spent for key, spent in self.steps.items() if (key[0] == SERVER) == server}
        parties = {name for name, _ in mine}
        total = sum(spent for (_, step), spent in mine.items() if start <= step < stop)
        return total / max(1, len(parties))


@dataclass(frozen=True)
class TimedEngine(Engine):
    """One process that notes the processor seconds of each party, step and exchange."""

    exchanges: list[ExchangeTimes] = field(default_factory=list)

    def open(self, specs: Mapping[str, PartySpec], memories: Mapping[str, Memory]) -> Session:
        return TimedSession(specs, memories, self.exchanges)


class TimedSession(InProcessSession):
    """A session that adds an entry to `exchanges` for each exchange."""

    def __init__(
        self,
        specs: Mapping[str, PartySpec],
        memories: Mapping[str, Memory],
        exchanges: list[ExchangeTimes],
    ) -> None:
        super().__init__(specs, memories)
        self.exchanges = exchanges
        self.step = 0

    def begin(self, tasks: Mapping[str, Any]) -> None:
        super().begin(tasks)
        self.exchanges.append(ExchangeTimes())
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
    """Private weighting on a `TimedEngine`; notes the time of local training too."""

    exchanges: list[ExchangeTimes] = field(default_factory=list)

    def silo(self, name: str, silos: tuple[str, ...], weighting: Weighting) -> SiloProtocol:
        return TimedSilo(name, super().silo(name, silos, weighting), self.exchanges)


@dataclass
class TimedSilo(SiloProtocol):
    """A silo's protocol that times how long its contributions take.

    name: of the silo.
    protocol: the silo's own protocol.
    exchanges: the times; the last entry is the current exchange.
    """

    name: str
    protocol: SiloProtocol
    exchanges: list[ExchangeTimes]

    def setup(self, task: SetUp, counts: np.ndarray) -> Party:
        self.protocol.signer = self.signer
        return self.protocol.setup(task, counts)

    def query(self, query: Query, respond: Respond) -> Party:
        def timed(broadcast: Broadcast) -> LocalJob:
            job = respond(broadcast)
            return replace(job, steps=self._timed(job.contributions))

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


def by_phase(setup: ExchangeTimes, queries: list[ExchangeTimes]) -> dict[str, float]:
    """Seconds of each phase: from the set-up, and on average over the queries.

    Phases of silos are averaged over the silos.
    """
    spans = {KEYS: (0, BLINDING_STEP), BLINDING: (BLINDING_STEP, math.inf)}
    phases = {
        phase: sum(setup.seconds(server=who, start=start, stop=stop) for who in (False, True))
        for phase, (start, stop) in spans.items()
    }
    training = [sum(query.training.values()) / len(query.training) for query in queries]
    silos = [query.seconds(server=False) for query in queries]
    phases[TRAINING] = float(np.mean(training))
    phases[WEIGHTING] = float(np.mean(np.subtract(silos, training)))
    phases[DECRYPTION] = float(np.mean([query.seconds(server=True) for query in queries]))
    return phases


def measure(exp: Experiment) -> dict[str, float]:
    """Seconds of each phase of one job with private weighting, and of python-paillier."""
    from fedpriv.runtime import prepare

    exchanges: list[ExchangeTimes] = []
    weighting = cast("PrivateWeighting", exp.aggregation)
    timed = replace(
        exp,
        engine=TimedEngine(exchanges),
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
    """python-paillier's seconds for a parameter of a user, an encryption and a decryption.

    Half of the timed parameters are positive, half negative.
    """
    from phe import EncodedNumber, EncryptedNumber, generate_paillier_keypair

    public, private = generate_paillier_keypair(n_length=key_bits)
    since = time.process_time()
    ciphertext = EncryptedNumber(public, public.raw_encrypt(secrets.randbelow(public.n)))
    encryption = time.process_time() - since
    # Encode(delta) r_u n_su C_LCM modulo n is as long as n. The library inverts the base for
    # exponents in the upper third.
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
    """Run the jobs of an experiment one by one; write protocol_time.csv into a folder."""
    rows = [
        row | {"phase": phase, "seconds": spent}
        for row, seconds in measured(f"experiment={name}", *profile_words(name, profile))
        for phase, spent in seconds.items()
    ]
    write_records(folder / "protocol_time.csv", rows)
    return pd.DataFrame(rows)


def measured(*words: str) -> Iterator[tuple[dict[str, Any], dict[str, float]]]:
    """Setting and seconds by phase of each job of a command line."""
    for config in compose_jobs(CommandLine.parse(list(words)), conf_dir()):
        exp = build(config)
        sizes = exp.federation
        row = {
            "data": config.hydra.runtime.choices.data,
            "users": sizes.n_users,
            "silos": sizes.n_silos,
            "parameters": sizes.n_parameters,
            "seed": exp.options.seed,
        }
        yield row, measure(exp)


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
        bars = axis.bar(
            x,
            heights,
            width,
            yerr=errors if max(errors) else None,
            label=_label(phase),
            color=_color(phase),
            alpha=0.5 if phase in PHE else 1.0,
            hatch="//" if phase in PHE else None,
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
    """Fig. 12: seconds against parameters and against users.

    The other number is the paper's usual one in the first row, and the largest in the second.
    """
    figure, axes = plt.subplots(2, 2, figsize=(10, 8), layout="constrained", sharey=True)
    for column, (x, fixed) in zip(axes.T, (("parameters", "users"), ("users", "parameters"))):
        for axis, value in zip(column, (USUAL[fixed], table[fixed].max())):
            here = table[table[fixed] == value]
            for phase in [*PHASES, *PHE]:
                seconds = here[here["phase"] == phase].groupby(x)["seconds"]
                curve = seconds.agg(["mean", "std"]).fillna(0.0)
                style = "--" if phase in PHE else "-"
                label = _label(phase)
                plot_band(axis, curve, ls=style, marker=".", color=_color(phase), label=label)
            axis.set(xlabel=x, yscale="log", title=f"{value} {fixed}")
            axis.set_xticks(sorted(here[x].unique()))
    for axis in axes[:, 0]:
        axis.set_ylabel("processor seconds")
    _finish(figure, [*axes.flat], table, out=out)


def _color(phase: str) -> str:
    return f"C{PHASES.index(PHE.get(phase, phase))}"


def _label(phase: str) -> str:
    return f"{phase} (once)" if phase in (KEYS, BLINDING) else phase


def _finish(figure: Figure, axes: Sequence[Axes], table: pd.DataFrame, *, out: Path) -> None:
    for axis in axes:
        axis.grid(alpha=0.3, axis="y")
    legend = axes[0].get_legend_handles_labels()
    figure.legend(*legend, ncol=4, fontsize=8, loc="outside upper center")
    seeds = table["seed"].nunique()
    figure.supxlabel(
        "seconds a round, but for what happens once; mean over silos and "
        f"{seeds} seed{'s' * (seeds > 1)}; python-paillier timed on {SLICE} pairs of user and "
        "parameter and scaled",
        fontsize=7,
    )
    save(figure, out)
