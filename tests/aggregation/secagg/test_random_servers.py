"""Servers that draw what they say: other survivors, keys, rosters and graphs for each silo, replays
of other queries and set-ups, messages out of order."""

from dataclasses import replace
from random import Random

import pytest
from cheating_server import Attack, unguarded
from secure_sums import OnRing, ready
from server_evaluator import Setting, Witnesses
from strategies_of_servers import random_view

from fedpriv.aggregation.secagg.graph import Sparse


def random_setting(chance, exact):
    """Safe in three of four draws."""
    for _ in range(1000):
        silos = chance.choice([3, 3, 4, 4, 5])
        candidates = chance.choice([silos, silos, silos, chance.randint(2, silos)])
        cohort = chance.randint(1, candidates)
        setting = Setting(
            silos=silos,
            candidates=candidates,
            cohort=cohort,
            threshold=chance.randint(1, cohort),
            colluding=chance.choice([0, 0, 1, 1, 2]),
            most=candidates if exact else None,
        )
        possible = setting.colluding < setting.threshold
        if possible and (setting.safe or chance.random() < 0.25):
            return setting
    raise AssertionError


def attack(seed, name):
    """One attack, after another one of which it replays; whether the setting is safe."""
    chance = Random(seed)
    setting = random_setting(chance, name == "secagg_exact_noise")
    witnesses = Witnesses.RECEIPTS
    aggregation = unguarded(setting)
    if name == "ring":
        setting = Setting(silos=7, candidates=7, cohort=chance.randint(5, 7), threshold=5)
        graph = Sparse(4, chance.randint(3, 5), chance.randint(0, 1), 9)
        aggregation = OnRing(threshold=5, cohort=setting.cohort, sparse=graph)
        witnesses = Witnesses.CHOSEN
    protocols = ready(aggregation, setting.silos)
    first = Attack(random_view(chance, setting, witnesses), aggregation, protocols)
    again = protocols if chance.random() < 0.5 else ready(aggregation, setting.silos)
    clean = chance.random() < 0.3
    more = {} if clean else {"earlier": first, "chance": chance}
    second = Attack(random_view(chance, setting, witnesses), aggregation, again, 2, **more)
    for found, exact in ((first, True), (second, clean)):
        if name == "ring":
            on_ring(found)
        assert not found.beyond()
        assert not exact or name == "ring" or found.agrees()
        assert name == "ring" or not (setting.safe and found.view.leaks)
        if name == "secagg_exact_noise":
            compare_noise(found, exact)
    return first, second


def compare_noise(attack, exact):
    """The coalition removes no more noise than the evaluator says; without replays just as much."""
    parts = attack.query.removable.parts
    for name, hidden in attack.surplus().items():
        said = attack.view.surplus.get(name, parts)
        assert hidden == said if exact else hidden >= said


def on_ring(attack):
    """Tell the evaluator of the graphs that the silos have computed."""
    members = attack.members.items()
    graphs = {name: member.graph for name, member in members if hasattr(member, "graph")}

    def around(_, name):
        return frozenset(graphs[name].around(name)) if name in graphs else frozenset()

    attack.view = replace(attack.view, around=around, shares=attack.terms.topology.shares)


@pytest.mark.parametrize("name", ["secagg", "secagg_exact_noise", "ring"])
@pytest.mark.parametrize(
    "seeds", [range(25), pytest.param(range(25, 1275), marks=pytest.mark.slow)], ids=str
)
def test_random_servers_learn_no_more_than_the_evaluator_says(name, seeds):
    learned = sum(bool(found.learned()) for seed in seeds for found in attack(seed, name))
    assert learned > 2
