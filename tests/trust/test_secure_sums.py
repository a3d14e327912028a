"""Lines of secure aggregation."""

import numpy as np
import pytest
from cheating_server import Attack, aggregation_of
from parties_of_generators import changed
from secure_sums import PHASES, parties, ready, total_of
from server_evaluator import Setting, Witnesses
from strategies_of_servers import random_view, split
from test_random_servers import attack as attack_by_a_random_server

from fedpriv.aggregation.secagg.aggregation import SecAgg
from fedpriv.errors import AggregationAbortedError, ConfigError

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("name", ["secagg", "secagg_exact_noise", "ring"])
def test_a_drawn_server_learns_one_sum_at_most(name, chance):
    for _ in range(60):
        attack_by_a_random_server(chance.randrange(10**6, 10**9), name)


def drawn_setting(chance, most, *, safe, exact=False):
    while True:
        silos = chance.randint(2, most)
        candidates = chance.choice([silos, chance.randint(2, silos)])
        cohort = chance.randint(1, candidates)
        threshold = chance.randint(1, cohort)
        made = Setting(
            silos=silos,
            candidates=candidates,
            cohort=cohort,
            threshold=threshold,
            colluding=chance.randint(0, threshold - 1),
            most=candidates if exact else None,
        )
        if made.safe == safe:
            return made


@pytest.mark.parametrize("exact", [False, True])
def test_no_drawn_view_of_a_safe_setting_leaks(exact, chance):
    for _ in range(4000):
        setting = drawn_setting(chance, 9, safe=True, exact=exact)
        assert not random_view(chance, setting, Witnesses.RECEIPTS).leaks


def test_drawn_unsafe_settings_are_refused_and_the_nearest_is_accepted(chance, refused):
    for _ in range(500):
        setting = drawn_setting(chance, 300, safe=False)
        refused(
            lambda setting=setting: aggregation_of(setting).cohort_size(setting.silos), ConfigError
        )
        nearest = setting.nearest()
        assert nearest.safe
        aggregation_of(nearest).cohort_size(nearest.silos)


def test_a_split_of_the_survivors_reads_no_single_message(chance):
    tried = 0
    while tried < 20:
        setting = drawn_setting(chance, 7, safe=True)
        if setting.silos < 3 or setting.candidates < setting.silos:
            continue
        try:
            view = split(setting)
        except (AssertionError, IndexError, ValueError, StopIteration):
            continue  # too small to be split
        for row in Attack(view, aggregation_of(setting)).learned():
            assert sum(map(bool, row.values())) > 1 or setting.cohort - setting.colluding < 2
        tried += 1


@pytest.mark.parametrize("phase", PHASES)
def test_a_silo_that_speaks_in_anothers_name_is_found(phase, refused):
    protocols = ready(SecAgg(threshold=3, cohort=3), 4)
    cast = parties(protocols, np.ones((4, 2)))
    signer = protocols["silo2"].signer
    cast["silo1"] = changed(cast["silo1"], phase, lambda sent: sent, name="silo1", signer=signer)
    refused(lambda: total_of(cast), AggregationAbortedError)
