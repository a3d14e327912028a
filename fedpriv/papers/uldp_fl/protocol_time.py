"""Seconds of private weighting by phase (Uldp-FL, Figs 11 and 12), beside python-paillier.

Every job of the experiment runs in this process, so that each party can be timed: a silo, on
average over the silos, and the server. python-paillier is used as published: one power and one sum
for every user and parameter, an encryption for every user, a decryption for every parameter. It is
timed in the same process on a small part, and scaled. All are seconds of the clock, as in the local
training that silos report.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import pandas as pd

from fedpriv.aggregation.base import SERVER
from fedpriv.engines.base import Answer, Engine, Returned, Session
from fedpriv.engines.inprocess import InProcessSession, answer
from fedpriv.papers.ledger.results import measurement
from fedpriv.parties.party import Mail, Memory, PartySpec
from fedpriv.rounds.query import SiloReport
from fedpriv.settings.compose import CommandLine, compose_jobs
from fedpriv.settings.experiment import Experiment, build
from fedpriv.settings.words import conf_dir

if TYPE_CHECKING:
    from fedpriv.aggregation.private_weighting.aggregation import PrivateWeighting

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


class TimedEngine(Engine):
    """One process that notes the seconds of each party and step."""

    def open(self, specs: Mapping[str, PartySpec], memories: Mapping[str, Memory]) -> Session:
        return TimedSession(specs, memories)


class TimedSession(InProcessSession):
    """Parties in this process, timed one by one.

    steps: a row for each exchange, step and party: its seconds, and those of them in which a silo
        trained.
    """

    def __init__(self, specs: Mapping[str, PartySpec], memories: Mapping[str, Memory]) -> None:
        super().__init__(specs, memories)
        self.steps: list[dict[str, Any]] = []
        self.exchange = -1

    def begin(self, tasks: Mapping[str, Any]) -> None:
        super().begin(tasks)
        self.exchange += 1
        self.step = 0

    def wake(self, mail: Mapping[str, Mail | None]) -> dict[str, Answer | None]:
        answers: dict[str, Answer | None] = {}
        for name in sorted(mail):
            since = time.perf_counter()
            said = answers[name] = answer(self.parties[name], mail[name])
            row = {"exchange": self.exchange, "step": self.step, "party": name}
            row |= {"seconds": time.perf_counter() - since}
            report = said.learned if isinstance(said, Returned) else None
            trained = report.seconds if isinstance(report, SiloReport) else 0.0
            self.steps.append(row | {"training": trained})
        self.step += 1
        return answers


def by_phase(steps: pd.DataFrame) -> dict[str, float]:
    """Seconds of each phase: from the set-up, and on average over the queries.

    steps: as of a `TimedSession`; exchange 0 is the set-up.

    Phases of silos are averaged over the silos.
    """
    setup = steps["step"].lt(BLINDING_STEP).map({True: KEYS, False: BLINDING})
    part = setup.where(steps["exchange"] == 0, "queries")
    role = steps["party"].eq(SERVER).map({True: "server", False: "silo"})
    parties = steps.groupby(role)["party"].nunique()
    total = steps.groupby([part, role])[["seconds", "training"]].sum()
    mean = total.div(parties, axis=0, level=1)
    seconds = mean["seconds"]
    training, silo, server = (
        float(each) / steps["exchange"].max()
        for each in (
            mean["training"]["queries", "silo"],
            seconds["queries", "silo"],
            seconds["queries", "server"],
        )
    )
    return {
        KEYS: float(seconds[KEYS].sum()),
        BLINDING: float(seconds[BLINDING].sum()),
        TRAINING: training,
        WEIGHTING: silo - training,
        DECRYPTION: server,
    }


def measure(exp: Experiment) -> dict[str, float]:
    """Seconds of each phase of one job with private weighting, and of python-paillier."""
    from fedpriv.runtime import prepare

    with prepare(replace(exp, engine=TimedEngine())) as prepared:
        state = prepared.state
        for number in range(1, exp.options.rounds + 1):
            state = prepared.run_round(prepared.queries(number), state).state
        held = float(np.mean([len(data.users) for data in prepared.silo_data]))
        steps = cast("TimedSession", prepared.session).steps
    users = exp.federation.n_users
    size = exp.federation.n_parameters
    weighting = cast("PrivateWeighting", exp.aggregation)
    pair, encryption, decryption = phe_seconds(weighting.key_bits)
    phe = dict(zip(PHE, (held * size * pair, users * encryption + size * decryption)))
    return by_phase(pd.DataFrame(steps)) | phe


def phe_seconds(key_bits: int) -> tuple[float, float, float]:
    """python-paillier's seconds for a parameter of a user, an encryption and a decryption.

    Half of the timed parameters are positive, half negative.
    """
    from phe import EncodedNumber, EncryptedNumber, generate_paillier_keypair

    public, private = generate_paillier_keypair(n_length=key_bits)
    since = time.perf_counter()
    ciphertext = EncryptedNumber(public, public.raw_encrypt(secrets.randbelow(public.n)))
    encryption = time.perf_counter() - since
    # Encode(delta) r_u n_su C_LCM modulo n is as long as n. The library inverts the base for
    # exponents in the upper third.
    exponents = [secrets.randbelow(public.n // 3) for _ in range(SLICE // 2)]
    exponents += [public.n - exponent for exponent in exponents]
    since = time.perf_counter()
    total = ciphertext
    for exponent in exponents:
        total = total + ciphertext * EncodedNumber(public, exponent, 0)
    pair = (time.perf_counter() - since) / SLICE
    since = time.perf_counter()
    private.raw_decrypt(total.ciphertext())
    return pair, encryption, time.perf_counter() - since


def measured(*words: str) -> Iterator[dict[str, Any]]:
    """Setting and seconds of each job and phase of a command line."""
    for config in compose_jobs(CommandLine.parse(list(words)), conf_dir()):
        exp = build(config)
        sizes = exp.federation
        row = {
            "data": config.hydra.runtime.choices.data,
            "users": sizes.n_users,
            "parameters": sizes.n_parameters,
            "seed": exp.options.seed,
        }
        for phase, spent in measure(exp).items():
            yield row | {"phase": phase, "seconds": spent}


def hospitals(say: Callable[[str], None], *, quick: bool = False) -> Iterator[dict[str, Any]]:
    """Fig. 11: heart disease and TCGA-BRCA, 10 and 100 users; quick: with a single seed.

    What the paper calls local training is `TRAINING` and `WEIGHTING` here: it counts a silo's work
    on ciphertexts.
    """
    return _ledger_rows("fig11", "0" if quick else "0,1,2,3,4", ("data", "users"), say)


def growing_sizes(say: Callable[[str], None], *, quick: bool = False) -> Iterator[dict[str, Any]]:
    """Fig. 12: artificial records, 16 to 107 parameters, 10 to 40 users; quick: with a single
    seed."""
    return _ledger_rows("fig12", "0" if quick else "0,1", ("parameters", "users"), say)


def _ledger_rows(
    name: str, seeds: str, keys: tuple[str, ...], say: Callable[[str], None]
) -> Iterator[dict[str, Any]]:
    for row in measured(f"experiment=uldp_fl/{name}", "rounds=1", f"seed={seeds}"):
        place = ", ".join(f"{key}={row[key]}" for key in keys)
        say(f"{place}, seed {row['seed']}, {row['phase']}")
        yield measurement(
            method=row["phase"],
            place=place,
            seed=row["seed"],
            round=1,
            metric="seconds",
            value=row["seconds"],
        )
