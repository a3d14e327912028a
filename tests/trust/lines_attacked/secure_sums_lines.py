"""Lines of secure aggregation."""

from __future__ import annotations

import numpy as np
from parties_of_generators import changed
from secagg.cheating_server import Attack, aggregation_of, unguarded
from secagg.secure_sums import parties as sum_parties
from secagg.secure_sums import ready, total_of
from secagg.server_evaluator import Setting, Witnesses
from secagg.strategies_of_servers import random_view, split, two_sets
from secagg.test_random_servers import attack as random_server

from fedpriv.aggregation.secagg.aggregation import SecAgg
from fedpriv.errors import AggregationAbortedError, ConfigError
from lines_attacked.rows import CHANCE, attack, refused


def servers(name, count):
    learned = 0
    for _ in range(count):
        learned += sum(
            bool(found.learned()) for found in random_server(CHANCE.randrange(10**6, 10**9), name)
        )
    return f"{2 * count} strategies, {learned} learned the one sum, none more"


for page, name, line in (
    ("secagg", "secagg", "server, cheating: draw what it says to each silo"),
    ("secagg_exact_noise", "secagg_exact_noise", "server, cheating: split the survivors"),
    ("secagg", "ring", "on a sparse graph: leave out a stretch of the ring"),
):
    attack(page, line, "60 drawn servers, each twice, with replays")(
        lambda name=name: servers(name, 60)
    )


def drawn_setting(most, *, safe, exact=False):
    while True:
        silos = CHANCE.randint(2, most)
        candidates = CHANCE.choice([silos, CHANCE.randint(2, silos)])
        cohort = CHANCE.randint(1, candidates)
        threshold = CHANCE.randint(1, cohort)
        colluding = CHANCE.randint(0, threshold - 1)
        made = Setting(
            silos=silos,
            candidates=candidates,
            cohort=cohort,
            threshold=threshold,
            colluding=colluding,
            most=candidates if exact else None,
        )
        if made.safe == safe:
            return made


@attack(
    "secagg",
    "a cheating server and colluding silos learn one sum at most",
    "4,000 drawn views of safe settings of up to nine silos",
)
def views():
    learned = 0
    for _ in range(4000):
        view = random_view(CHANCE, drawn_setting(9, safe=True), Witnesses.RECEIPTS)
        assert not view.leaks
        learned += bool(view.learned())
    return f"{learned} learned one sum, none more"


@attack(
    "secagg_exact_noise",
    "server, cheating: no noise that is certified can be removed",
    "4,000 drawn views of safe settings of up to nine silos",
)
def noisy_views():
    for _ in range(4000):
        view = random_view(CHANCE, drawn_setting(9, safe=True, exact=True), Witnesses.RECEIPTS)
        assert not view.leaks
    return "none leaves less than is certified"


@attack(
    "secagg",
    "other settings are refused before a run, with the nearest that is allowed",
    "500 unsafe settings of up to 300 silos",
)
def unsafe():
    for _ in range(500):
        setting = drawn_setting(300, safe=False)
        nearest = setting.nearest()
        assert refused(
            lambda setting=setting: aggregation_of(setting).cohort_size(setting.silos), ConfigError
        ), setting
        assert nearest.safe
        aggregation_of(nearest).cohort_size(nearest.silos)
    return "500 of 500 refused in one line; the named setting is accepted"


@attack(
    "secagg",
    "server, cheating: tell some silos of other survivors",
    "the split on 20 drawn safe settings of three to seven real silos",
)
def splits():
    tried = 0
    while tried < 20:
        setting = drawn_setting(7, safe=True)
        if setting.silos < 3 or setting.candidates < setting.silos:
            continue
        try:
            view = split(setting)
        except (AssertionError, IndexError, ValueError, StopIteration):
            continue
        found = Attack(view, aggregation_of(setting))
        assert all(
            sum(map(bool, row.values())) > 1 or setting.cohort - setting.colluding < 2
            for row in found.learned()
        )
        tried += 1
    return "20 of 20: no single message read"


@attack(
    "secagg",
    "server and fewer silos than the threshold learn the others' sum, and no more",
    "a cheating server where 2 threshold <= candidates + colluding, without the check of settings",
)
def below_the_threshold():
    setting = Setting(silos=5, candidates=5, cohort=4, threshold=2, colluding=0)
    found = Attack(two_sets(setting), unguarded(setting))
    assert found.view.leaks
    assert found.agrees()
    return (
        "**fell**: it reads two sums. The line did not say that the server follows the protocol; "
        "it does now"
    )


@attack(
    "secagg",
    "the server learns only the sum over the chosen silos",
    "the same vectors in 30 rounds after one set-up",
)
def equal_numbers():
    protocols = ready(SecAgg(threshold=2, cohort=3), 3)
    for number in range(1, 31):
        total = total_of(sum_parties(protocols, np.ones((3, 5)), number))
        assert np.allclose(total.vector, 3, atol=1e-3)
    return "30 sums exact"


@attack(
    "secagg",
    "silo, cheating: speak in the name of another",
    "a letter of silo1 signed by silo2, in each phase",
)
def other_names():
    from secagg.secure_sums import PHASES

    for phase in PHASES:
        protocols = ready(SecAgg(threshold=3, cohort=3), 4)
        cast = sum_parties(protocols, np.ones((4, 2)))
        cast["silo1"] = changed(
            cast["silo1"], phase, lambda sent: sent, name="silo1", signer=protocols["silo2"].signer
        )
        ended = refused(lambda cast=cast: total_of(cast), AggregationAbortedError)
        assert ended, phase
    return "found in all five phases"
