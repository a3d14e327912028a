"""A cheating server that tells some silos of other survivors than the rest, on real silos."""

import pytest
from cheating_server import Attack, unguarded
from strategies_of_servers import split

from fedpriv.aggregation.secagg.graph import Complete
from fedpriv.aggregation.secagg.threat_model import Setting, Witnesses

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


@pytest.mark.parametrize("setting", SPLITS.values(), ids=SPLITS)
def test_without_receipts_it_reads_a_message(setting, monkeypatch):
    """As if silos that are left out of a set could sign it, unseen for whom others have masked."""
    monkeypatch.setattr(Complete, "receipts", False)
    attack = Attack(split(setting, witnesses=Witnesses.DELIVERED), unguarded(setting))
    assert (attack.read({"silo0"}) == attack.inputs["silo0"]).all()
    assert attack.learned() == [{name: int(name == "silo0") for name in attack.messages}]
    assert attack.agrees()
