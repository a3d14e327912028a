"""A cheating server that tells some silos of other survivors than the rest, on real silos."""

from itertools import product

import pytest
from cheating_server import Attack, aggregation_of, unguarded
from secure_sums import names
from server_evaluator import Setting, Witnesses
from strategies_of_servers import split, two_sessions, two_sets
from views_of_servers import SPLITTABLE

from fedpriv.aggregation.secagg.graph import Complete
from fedpriv.errors import ConfigError

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


def test_there_are_more_than_twenty_of_them():
    assert len([*real_attacks()]) >= 20


def test_two_sets_are_read_from_real_silos_where_the_rule_does_not_hold():
    setting = Setting(silos=4, candidates=4, cohort=3, threshold=2)
    assert not setting.safe
    attack = Attack(two_sets(setting), unguarded(setting))
    assert not attack.refused
    assert attack.agrees()
    for name in ("silo0", "silo3"):
        assert (attack.read({name}) == attack.inputs[name]).all()
    with pytest.raises(ConfigError, match=r"nearest: aggregation\.threshold=3"):
        aggregation_of(setting).cohort_size(4)


def test_two_sessions_are_read_from_real_silos_where_the_rule_does_not_hold():
    setting = Setting(silos=8, candidates=4, cohort=4, threshold=3)
    attack = Attack(two_sessions(setting), unguarded(setting))
    assert attack.agrees()
    for half in (names(8)[:4], names(8)[4:]):
        assert (attack.read(set(half)) == sum(attack.inputs[name] for name in half)).all()
    with pytest.raises(
        ConfigError, match=r"two sums.*nearest: .*cohort=5, aggregation\.candidates=5"
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
