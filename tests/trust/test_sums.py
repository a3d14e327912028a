"""Lines of plain, masked, secure and shuffled sums, and of private weighting."""

import numpy as np
import pytest
from cheating_server import Attack, aggregation_of
from parties_of_generators import Protocols, changed, run
from server_evaluator import Setting, Witnesses
from strategies_of_servers import random_view, split
from test_masked_servers import check as check_masked_server
from test_secagg_knowledge import attack as attack_by_a_random_server

from fedpriv.aggregation.base import SERVER
from fedpriv.aggregation.masked import mask
from fedpriv.aggregation.plain import Plain
from fedpriv.aggregation.weighted import WEIGHTS
from fedpriv.errors import AggregationAbortedError, ConfigError
from fedpriv.rounds.contributors import RecordWeighting

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("lie", [np.nextafter(1, 2), -5e-324, np.nan, np.inf, -1.0])
def test_a_weight_outside_0_to_1_is_refused(lie, refused):
    protocols = Protocols(Plain(), (0, 1, 2), RecordWeighting())
    cast = protocols.setup(np.array([[1, 2], [3, 1], [5, 6]]))

    def lying(sent):
        wrong = sent["silo0"].copy()
        wrong[0] = lie
        return sent | {"silo0": wrong}

    signer = lambda: protocols[SERVER].signer  # noqa: E731
    cast[SERVER] = changed(cast[SERVER], WEIGHTS, lying, name=SERVER, signer=signer)
    refused(lambda: run(cast), AggregationAbortedError)


def test_drawn_servers_learn_the_masked_sum_of_honest_silos_alone(chance):
    for _ in range(100):
        check_masked_server(chance.randrange(10**6, 10**9))


def test_masks_of_drawn_serials_models_and_cohorts_differ(chance):
    seeds = {f"silo{i}": chance.randbytes(32) for i in range(6)}
    masks = {}
    for _ in range(2000):
        cohort = tuple(sorted({"silo0", *chance.sample([*seeds], chance.randint(1, 5))}))
        serial = chance.randint(1, 99), chance.randint(0, 9)
        about = serial, chance.choice([b"", b"m", b"n"]), cohort
        if len(cohort) > 1:
            zeros = np.zeros(4, np.uint64)
            made = mask(zeros, "silo0", cohort, seeds=seeds, serial=serial, told=about[1])
            masks[about] = made.tobytes()
    assert len(set(masks.values())) == len(masks)


# -- secure aggregation ----------------------------------------------------------------------------


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


def test_drawn_unsafe_settings_are_refused(chance, refused):
    for _ in range(500):
        setting = drawn_setting(chance, 300, safe=False)
        refused(
            lambda setting=setting: aggregation_of(setting).cohort_size(setting.silos), ConfigError
        )


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
