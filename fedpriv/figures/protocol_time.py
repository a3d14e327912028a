"""Processor seconds of private weighting by phase (Uldp-FL, Figs 11 and 12), beside python-paillier used as published.

Every job of the experiment runs here, in one process, so that each party's part can be timed apart: a silo's, on
average over the silos, and the server's. python-paillier's part, one power and one sum for every user and parameter, an
encryption a user and a decryption a parameter, is timed in the same process on a slice and scaled.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import matplotlib
import numpy as np
import pandas as pd

from fedpriv.aggregation.base import SERVER
from fedpriv.compose import Words, compose_jobs, own
from fedpriv.config import Experiment, build
from fedpriv.engines.base import Engine, Host
from fedpriv.engines.inprocess import answer
from fedpriv.figures.tables import write_table
from fedpriv.help import conf_dir

matplotlib.use("Agg")  # figures go to files
import matplotlib.pyplot as plt

if TYPE_CHECKING:
    from fedpriv.aggregation.base import Party
    from fedpriv.engines.base import Mail, Returned, Sent

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
QUICK = ("seed=0", "rounds=1")
SETTING = ["data", "users", "silos", "parameters"]


@dataclass(frozen=True)
class Timed(Engine):
    """One process that notes who took how many processor seconds in which step of which exchange."""

    notes: list[dict[tuple[str, int], float]] = field(default_factory=list)

    @contextmanager
    def host(self, parties: dict[str, Party]) -> Iterator[Host]:
        host = _Timed(parties)
        yield host
        self.notes.append(host.seconds)


class _Timed:
    def __init__(self, parties: dict[str, Party]) -> None:
        self.parties, self.step = parties, 0
        self.seconds: dict[tuple[str, int], float] = {}

    def wake(self, mail: dict[str, Mail | None]) -> dict[str, Sent | Returned | None]:
        answers = {}
        for name in sorted(mail):
            since = time.process_time()
            answers[name] = answer(self.parties[name], mail[name])
            self.seconds[name, self.step] = time.process_time() - since
        self.step += 1
        return answers


def by_phase(setup: dict[tuple[str, int], float], rounds: list[dict[tuple[str, int], float]]) -> dict[str, float]:
    """Seconds of each phase from the steps of a set-up and, on average, of the rounds."""

    def silos(seconds: dict[tuple[str, int], float], wanted: Callable[[int], bool]) -> float:
        names = {name for name, _ in seconds} - {SERVER}
        return sum(spent for (name, step), spent in seconds.items() if name in names and wanted(step)) / len(names)

    def servers(seconds: dict[tuple[str, int], float], wanted: Callable[[int], bool]) -> float:
        return sum(spent for (name, step), spent in seconds.items() if name == SERVER and wanted(step))

    halves = {KEYS: lambda step: step < BLINDING_STEP, BLINDING: lambda step: step >= BLINDING_STEP}
    phases = {phase: silos(setup, wanted) + servers(setup, wanted) for phase, wanted in halves.items()}
    phases[TRAINING] = float(np.mean([silos(round, lambda step: step == 0) for round in rounds]))
    phases[WEIGHTING] = float(np.mean([silos(round, lambda step: step > 0) for round in rounds]))
    phases[DECRYPTION] = float(np.mean([servers(round, lambda step: True) for round in rounds]))
    return phases


def measure(exp: Experiment) -> dict[str, float]:
    """Seconds of each phase of one job, python-paillier's included."""
    from fedpriv.simulation import prepare

    engine = Timed()
    simulation = prepare(replace(exp, engine=engine))
    theta = simulation.theta0
    for round in range(1, exp.options.rounds + 1):
        theta = simulation.run_round(simulation.plan(round), theta).theta
    setup, *rounds = engine.notes
    users, size = exp.federation.n_users, exp.federation.n_parameters
    held = float(np.mean([len(local.data.users) for local in simulation.locals]))
    pair, encryption, decryption = phe_seconds(exp.aggregation.key_bits)
    phe = dict(zip(PHE, (held * size * pair, users * encryption + size * decryption)))
    return by_phase(setup, rounds) | phe


def phe_seconds(key_bits: int) -> tuple[float, float, float]:
    """What python-paillier takes for a parameter of a user, positive and negative in equal parts, for an encryption and
    for a decryption."""
    from phe import EncodedNumber, EncryptedNumber, generate_paillier_keypair

    public, private = generate_paillier_keypair(n_length=key_bits)
    since = time.process_time()
    ciphertext = EncryptedNumber(public, public.raw_encrypt(secrets.randbelow(public.n)))
    encryption = time.process_time() - since
    # Encode(delta) r_u n_su C_LCM modulo n is as long as n; the library inverts the base for the upper third.
    exponents = [secrets.randbelow(public.n // 3) for _ in range(SLICE // 2)]
    exponents += [public.n - exponent for exponent in exponents]
    since, total = time.process_time(), ciphertext
    for exponent in exponents:
        total = total + ciphertext * EncodedNumber(public, exponent, 0)
    pair = (time.process_time() - since) / SLICE
    since = time.process_time()
    private.raw_decrypt(total.ciphertext())
    return pair, encryption, time.process_time() - since


def run(name: str, folder: Path, profile: str) -> pd.DataFrame:
    """Every job of experiment `name`, one after the other; writes protocol_time.csv into `folder`."""
    words = [f"experiment={name}", *(QUICK if profile == "quick" else ())]
    rows: list[dict[str, Any]] = []
    for config in compose_jobs(Words.parse(words), conf_dir()):
        exp = build(own(config))
        sizes = exp.federation
        setting = (config.hydra.runtime.choices.data, sizes.n_users, sizes.n_silos, sizes.n_parameters)
        for phase, seconds in measure(exp).items():
            rows.append({**dict(zip(SETTING, setting)), "seed": exp.options.seed, "phase": phase, "seconds": seconds})
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
            table[(table[SETTING] == group).all(axis=1) & (table["phase"] == phase)]["seconds"] for group in groups
        ]
        heights, errors = [part.mean() for part in parts], [part.std(ddof=0) for part in parts]
        x = np.arange(len(groups)) + (place - (len(names) - 1) / 2) * width
        look = {"color": _color(phase), "hatch": "//" if phase in PHE else None, "alpha": 0.5 if phase in PHE else 1.0}
        bars = axis.bar(x, heights, width, yerr=errors if max(errors) else None, label=_name(phase), **look)
        axis.bar_label(bars, [f"{height:.2g}" for height in heights], fontsize=6, padding=1)
    labels = [f"{data}\n{users} users, {silos} silos, {size} parameters" for data, users, silos, size in groups]
    axis.set_xticks(range(len(groups)), labels, fontsize=8)
    axis.set(yscale="log", ylabel="processor seconds")
    _finish(figure, [axis], table, out)


def growth(table: pd.DataFrame, out: Path) -> None:
    """Fig. 12: seconds against parameters, for the most users, and against users, for the most parameters."""
    figure, axes = plt.subplots(1, 2, figsize=(10, 4.8), layout="constrained", sharey=True)
    for axis, (across, fixed) in zip(axes, (("parameters", "users"), ("users", "parameters"))):
        most = table[table[fixed] == table[fixed].max()]
        for phase in [*PHASES, *PHE]:
            curve = most[most["phase"] == phase].groupby(across)["seconds"].agg(["mean", "std"]).fillna(0.0)
            style = "--" if phase in PHE else "-"
            axis.plot(curve.index, curve["mean"], style, marker=".", color=_color(phase), label=_name(phase))
            low, high = curve["mean"] - curve["std"], curve["mean"] + curve["std"]
            axis.fill_between(curve.index, low, high, color=_color(phase), alpha=0.2, lw=0)
        axis.set(xlabel=across, yscale="log", title=f"{table[fixed].max()} {fixed}")
        axis.set_xticks(sorted(most[across].unique()))
    axes[0].set_ylabel("processor seconds")
    _finish(figure, axes, table, out)


def _color(phase: str) -> str:
    return f"C{PHASES.index(PHE.get(phase, phase))}"


def _name(phase: str) -> str:
    return {KEYS: f"{KEYS} (once)", BLINDING: f"{BLINDING} (once)"}.get(phase, phase)


def _finish(figure: plt.Figure, axes: list[plt.Axes], table: pd.DataFrame, out: Path) -> None:
    for axis in axes:
        axis.grid(alpha=0.3, axis="y")
    handles, labels = axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, ncol=4, fontsize=8, loc="outside upper center")
    seeds = table["seed"].nunique()
    note = f"seconds a round, but for what happens once; mean over silos and {seeds} seed{'s' * (seeds > 1)}; "
    figure.supxlabel(f"{note}python-paillier timed on {SLICE} pairs of user and parameter and scaled", fontsize=7)
    figure.savefig(out, dpi=150)
    plt.close(figure)
