"""The rule of safe settings against an evaluator of all that a cheating server can see."""

from dataclasses import replace
from fractions import Fraction
from itertools import product

import pytest
from cheating_server import Attack, aggregation_of, unguarded
from secure_sums import names
from server_evaluator import Claim, ServerView, Setting, Witnesses
from strategies_of_servers import split, two_sessions, two_sets
from views_of_servers import (
    SPLITTABLE,
    a_view_leaks,
    a_view_of_types_leaks,
    settings_of,
    subsets,
    view_of,
)

from fedpriv.aggregation.secagg.exact_noise import SecAggExactNoise
from fedpriv.aggregation.secagg.graph import Complete
from fedpriv.aggregation.secagg.threat_model import least_majority
from fedpriv.errors import ConfigError


def every_setting(most: int):
    """All settings with up to so many silos, all of them candidates."""
    for silos in range(1, most + 1):
        yield from settings_of(silos)


@pytest.mark.parametrize("witnesses", [Witnesses.RECEIPTS, Witnesses.CHOSEN])
def test_no_view_of_three_silos_leaks_where_the_rule_holds(witnesses):
    for setting in settings_of(3):
        leaks = a_view_leaks(setting, witnesses)
        everybody = witnesses is Witnesses.RECEIPTS and setting.cohort == 3
        assert leaks == (not setting.safe and not everybody), setting


def test_all_views_of_three_silos_find_the_splits():
    leaks = {
        (setting.cohort, setting.threshold, setting.colluding)
        for setting in settings_of(3)
        if setting.safe and a_view_leaks(setting, Witnesses.DELIVERED)
    }
    assert leaks == SPLITTABLE[3]


def with_surplus(settings):
    return [replace(setting, most=setting.silos) for setting in settings]


def test_no_view_of_three_silos_removes_noise_that_is_certified():
    for setting in with_surplus(settings_of(3)):
        if setting.safe:
            assert not a_view_leaks(setting, Witnesses.RECEIPTS), setting


def test_surplus_for_all_taken_from_a_sum_over_some_would_leave_too_little():
    """Where two statements are possible: a sum of three of five silos keeps three fifths."""
    setting = Setting(silos=5, candidates=5, cohort=3, threshold=2, most=5)
    assert not setting.safe
    everybody = frozenset(names(5))
    few = frozenset(names(3))
    claims = {
        name: Claim(listed=everybody, sets=(few if place < 2 else everybody,))
        for place, name in enumerate(names(5))
    }
    view = ServerView(setting=setting, claims=claims)
    assert few in view.learned()
    assert view.noise_left(few) == Fraction(3, 5) < setting.certified_noise
    safe = replace(view, setting=replace(setting, threshold=3))
    assert safe.learned() == [everybody]
    assert safe.noise_left(everybody) == 1


@pytest.mark.parametrize("silos", [4, 5])
def test_no_set_of_a_safe_setting_keeps_less_noise_than_is_certified(silos):
    """All sizes of the set, all numbers of colluding silos in it, and all drop-outs after it."""
    for setting in with_surplus(settings_of(silos)):
        if not setting.safe:
            continue
        for chosen in subsets(setting.everybody, setting.cohort):
            for silent in subsets(setting.honest):
                claims = {
                    name: Claim(listed=setting.everybody, sets=(chosen,) * (name not in silent))
                    for name in setting.honest
                }
                view = view_of(setting, Witnesses.RECEIPTS, claims)
                assert not view.leaks, (setting, chosen, silent)
                for part in view.learned():
                    hidden = len(chosen - setting.colluders)
                    assert view.noise_left(part) == Fraction(hidden, len(chosen))


@pytest.mark.parametrize("silos", [3, 4, 7, 10, 20, 50, 100])
def test_defaults_of_exact_noise_are_safe_and_certify_what_stays(silos):
    """With no number set, and with as many colluding silos as are admitted."""
    most = -1
    for colluding in range(silos):
        aggregation = SecAggExactNoise(colluding=colluding)
        try:
            size = aggregation.cohort_size(silos)
        except ConfigError:
            break
        most = colluding
        threshold, cohort, candidates = aggregation.numbers(silos)
        setting = Setting(
            silos=silos,
            candidates=candidates,
            cohort=cohort,
            threshold=threshold,
            colluding=colluding,
            most=candidates,
        )
        assert setting.safe
        assert (size.least, size.most) == (cohort, candidates)
        _, server, _ = aggregation.threat_model().observers
        hidden = Fraction(cohort - server.own_shares - server.colluding, cohort)
        assert hidden <= setting.certified_noise
    assert most >= 0


@pytest.mark.parametrize(
    "silos", [3, 4, *(pytest.param(silos, marks=pytest.mark.slow) for silos in (5, 6))]
)
def test_verdicts_of_a_search(silos):
    splittable = set()
    for setting, witnesses in product(settings_of(silos), Witnesses):
        if setting.safe and a_view_of_types_leaks(setting, witnesses):
            assert witnesses is Witnesses.DELIVERED, setting
            splittable.add((setting.cohort, setting.threshold, setting.colluding))
    assert splittable == SPLITTABLE[silos]


def test_two_sets_are_read_wherever_the_rule_does_not_hold():
    """Unless there is one set only, that of all silos."""
    for setting in every_setting(9):
        if setting.cohort < setting.silos:
            assert two_sets(setting).leaks == (not setting.safe), setting


def test_splits_leak_by_a_known_rule_and_only_without_receipts():
    for setting in every_setting(9):
        if setting.safe:
            known = 2 * setting.threshold + setting.cohort <= 2 * setting.silos + setting.colluding
            assert split(setting, Witnesses.DELIVERED).leaks == known, setting
            assert not split(setting, Witnesses.CHOSEN).leaks, setting
            assert not split(setting).leaks, setting


def test_a_setting_is_accepted_if_and_only_if_it_is_safe():
    """All settings of up to 20 silos that are all candidates."""
    accepted = 0
    for silos, colluding in product(range(1, 21), range(20)):
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
            elif (threshold + cohort + colluding) % 7:
                continue  # the rest are alike
            check_refusal(setting)
    assert accepted == 2_640


def check_refusal(setting):
    """That a safe setting is accepted, and an unsafe one is refused in a line with the least
    threshold."""
    aggregation = aggregation_of(setting)
    if setting.safe:
        assert aggregation.cohort_size(setting.silos).least == setting.cohort
        return
    least = least_majority(setting.candidates, setting.colluding)
    with pytest.raises(ConfigError, match=rf"threshold=.*: at least {least}, over half"):
        aggregation.cohort_size(setting.silos)


# -- a cheating server that tells some silos of other survivors than the rest, on real silos -------


SPLITS = {
    "no colluding silo": Setting(silos=9, candidates=9, cohort=5, threshold=5),
    "three of ten": Setting(silos=10, candidates=10, cohort=7, threshold=7, colluding=3),
    "exact noise, one of four": Setting(
        silos=4, candidates=4, cohort=3, threshold=3, colluding=1, most=4
    ),
    "exact noise, two of seven": Setting(
        silos=7, candidates=7, cohort=5, threshold=5, colluding=2, most=7
    ),
}
"""Settings in which such a server reads a message if all silos that deliver may sign a set."""


@pytest.mark.parametrize("setting", SPLITS.values(), ids=SPLITS)
def test_a_server_that_splits_the_survivors_reads_nothing(setting):
    attack = Attack(split(setting), unguarded(setting))
    assert attack.read({"silo0"}) is None
    assert attack.learned() == []
    assert attack.refused
    assert attack.agrees()


def real_attacks():
    """Settings that the rule allows, with a strategy that would read a message if all silos that
    deliver could sign, or if silos signed two sets."""
    for silos, found in SPLITTABLE.items():
        for (cohort, threshold, colluding), most in product(found, (None, silos)):
            setting = Setting(
                silos=silos,
                candidates=silos,
                cohort=cohort,
                threshold=threshold,
                colluding=colluding,
                most=most,
            )
            yield setting, split
            if cohort == threshold == 4:
                yield setting, two_sets


@pytest.mark.parametrize(("setting", "strategy"), [*real_attacks()])
def test_real_silos_withstand_known_attacks(setting, strategy):
    attack = Attack(strategy(setting), aggregation_of(setting))
    assert setting.safe
    assert attack.refused
    assert not attack.view.leaks
    assert attack.agrees()
    assert all(sum(map(bool, row.values())) > 1 for row in attack.learned())


def test_two_sets_are_read_from_real_silos_where_the_rule_does_not_hold():
    setting = Setting(silos=4, candidates=4, cohort=3, threshold=2)
    assert not setting.safe
    attack = Attack(two_sets(setting), unguarded(setting))
    assert not attack.refused
    assert attack.agrees()
    for name in ("silo0", "silo3"):
        assert (attack.read({name}) == attack.inputs[name]).all()
    with pytest.raises(ConfigError, match=r"threshold=2: at least 3, over half of 4 cand"):
        aggregation_of(setting).cohort_size(4)


def test_two_sessions_are_read_from_real_silos_where_the_rule_does_not_hold():
    setting = Setting(silos=8, candidates=4, cohort=4, threshold=3)
    attack = Attack(two_sessions(setting), unguarded(setting))
    assert attack.agrees()
    for half in (names(8)[:4], names(8)[4:]):
        assert (attack.read(set(half)) == sum(attack.inputs[name] for name in half)).all()
    with pytest.raises(
        ConfigError, match=r"aggregation\.cohort=4: at least 5, over half of 8 silos.*two sums"
    ):
        aggregation_of(setting).cohort_size(8)


@pytest.mark.parametrize("setting", SPLITS.values(), ids=SPLITS)
def test_without_receipts_it_reads_a_message(setting, monkeypatch):
    """As if silos that are left out of a set could sign it, unseen for whom others have masked."""
    monkeypatch.setattr(Complete, "receipts", False)
    attack = Attack(split(setting, witnesses=Witnesses.DELIVERED), unguarded(setting))
    assert (attack.read({"silo0"}) == attack.inputs["silo0"]).all()
    assert attack.learned() == [{name: int(name == "silo0") for name in attack.messages}]
    assert attack.agrees()
