"""The rule of safe settings against an evaluator of all that a cheating server can see."""

from dataclasses import replace
from itertools import product

import pytest
from cheating_server import aggregation_of
from strategies_of_servers import five_sets, split, two_sessions, two_sets
from views_of_servers import SPLITTABLE, leaking_types, leaking_view, settings_of

from fedpriv.aggregation.secagg.threat_model import ALL, Check, Setting, Witnesses
from fedpriv.errors import ConfigError


def every_setting(most: int):
    """All settings with up to so many silos, all of them candidates."""
    for silos in range(1, most + 1):
        yield from settings_of(silos)


@pytest.mark.parametrize("witnesses", [Witnesses.RECEIPTS, Witnesses.CHOSEN])
def test_no_view_of_three_silos_leaks_where_the_rule_holds(witnesses):
    for setting in settings_of(3):
        leaks = leaking_view(setting, witnesses) is not None
        everybody = witnesses is Witnesses.RECEIPTS and setting.cohort == 3
        assert leaks == (not setting.safe and not everybody), setting


def test_all_views_of_three_silos_find_the_splits():
    leaks = {
        (setting.cohort, setting.threshold, setting.colluding)
        for setting in settings_of(3)
        if setting.safe and leaking_view(setting, Witnesses.DELIVERED)
    }
    assert leaks == SPLITTABLE[3]


NEEDED = {
    Check.GENUINE_KEYS: Witnesses.RECEIPTS,
    Check.SET_SIZE: Witnesses.RECEIPTS,
    Check.ONE_SET: Witnesses.RECEIPTS,
    Check.WITNESS: Witnesses.RECEIPTS,
    Check.ONE_SECRET: Witnesses.RECEIPTS,
    Check.LIST_SIZE: Witnesses.CHOSEN,
}
"""Checks without which three silos leak, and under which rule for witnesses."""


@pytest.mark.parametrize("check", NEEDED, ids=lambda check: check.name)
def test_three_silos_leak_without(check):
    assert any(
        setting.safe and leaking_view(setting, NEEDED[check], ALL - {check})
        for setting in settings_of(3)
    )


@pytest.mark.parametrize("check", [Check.SET_IN_SIGNATURES, Check.ENOUGH_SIGNATURES])
def test_five_silos_leak_without(check):
    assert not five_sets().leaks
    assert five_sets(ALL - {check}).learned() == [frozenset({"silo3", "silo4"})]


def test_four_silos_leak_without_a_limit_on_rosters():
    setting = Setting(silos=4, candidates=3, cohort=3, threshold=2)
    assert setting.safe
    assert not two_sets(setting).leaks
    assert two_sets(setting, ALL - {Check.ROSTER_SIZE}).leaks


def test_every_check_is_needed_somewhere():
    shown = {*NEEDED, Check.SET_IN_SIGNATURES, Check.ENOUGH_SIGNATURES, Check.ROSTER_SIZE}
    assert shown == set(Check)


def check_verdicts(silos):
    splittable = set()
    for setting in settings_of(silos):
        if not setting.safe:
            continue
        for witnesses in Witnesses:
            leak = leaking_types(setting, witnesses)
            if leak is not None:
                assert witnesses is Witnesses.DELIVERED, setting
                splittable.add((setting.cohort, setting.threshold, setting.colluding))
    assert splittable == SPLITTABLE[silos]


@pytest.mark.parametrize("silos", [3, 4])
def test_verdicts_of_a_search(silos):
    check_verdicts(silos)


@pytest.mark.slow
@pytest.mark.parametrize("silos", [5, 6])
def test_verdicts_of_a_longer_search(silos):
    check_verdicts(silos)


def test_two_sets_are_read_wherever_the_rule_does_not_hold():
    """Unless there is one set only, that of all silos."""
    for setting in every_setting(12):
        if setting.cohort < setting.silos:
            assert two_sets(setting).leaks == (not setting.safe), setting


def test_splits_leak_by_a_known_rule_and_only_without_receipts():
    for setting in every_setting(12):
        if setting.safe:
            known = 2 * setting.threshold + setting.cohort <= 2 * setting.silos + setting.colluding
            assert split(setting, Witnesses.DELIVERED).leaks == known, setting
            assert not split(setting, Witnesses.CHOSEN).leaks, setting
            assert not split(setting).leaks, setting


def test_two_sessions_side_by_side_read_two_sums_of_few_candidates():
    setting = Setting(silos=8, candidates=4, cohort=4, threshold=3)
    view = two_sessions(setting)
    assert view.learned() == [frozenset(f"silo{i}" for i in half) for half in ("0123", "4567")]
    assert not setting.safe
    assert setting.nearest() == replace(setting, candidates=5, cohort=5)


def test_a_setting_is_accepted_if_and_only_if_it_is_safe():
    """All settings of up to 40 silos that are all candidates."""
    accepted = 0
    for silos, colluding in product(range(1, 41), range(40)):
        for threshold, cohort in product(range(1, silos + 1), repeat=2):
            if colluding >= threshold or threshold > cohort:
                continue
            setting = Setting(
                silos=silos,
                candidates=silos,
                cohort=cohort,
                threshold=threshold,
                colluding=colluding,
            )
            if setting.safe:
                accepted += 1
                assert setting.nearest() == setting
            elif (threshold + cohort + colluding) % 7:
                continue  # the rest are alike
            check_refusal(setting)
    assert accepted == 33_880


def check_refusal(setting):
    """That a safe setting is accepted, and an unsafe one is refused in a line with one that is
    accepted."""
    aggregation = aggregation_of(setting)
    if setting.safe:
        assert aggregation.cohort_size(setting.silos).least == setting.cohort
        return
    nearest = setting.nearest()
    assert nearest.safe
    assert nearest.threshold <= nearest.cohort <= nearest.candidates <= nearest.silos
    with pytest.raises(ConfigError, match=rf"nearest: .*threshold={nearest.threshold}\b"):
        aggregation.cohort_size(setting.silos)
    aggregation_of(nearest).cohort_size(nearest.silos)
