"""Several faults at once, in every exchange."""

from __future__ import annotations

import random

from fedpriv.testing.damage import flip_bit
from fedpriv.testing.fault_trials import FaultTrials
from fedpriv.testing.faults import alter, delay, drop, duplicate, forge
from lines_attacked.rows import CHANCE, attack
from scripts.fault_scenarios import SCENARIOS


def lives(name, count=12):
    wrong = aborted = 0
    with FaultTrials(SCENARIOS[name].experiment()) as bench:
        everybody = (*bench.prepared.aggregation.helpers, *bench.prepared.silos)
        for _ in range(count):
            seed = CHANCE.random()
            kinds = {
                "alter": lambda where, seed=seed: alter(
                    lambda message: flip_bit(random.Random(seed), message), **where
                ),
                "forge": lambda where: forge(lambda content: (content, 0), **where),
                "delay": lambda where: delay(CHANCE.randint(1, 5), **where),
                "drop": lambda where: drop(**where),
                "duplicate": lambda where: duplicate(**where),
            }
            faults = [
                kinds[CHANCE.choice([*kinds])](
                    {
                        "exchange": CHANCE.randint(0, 3),
                        "sender": CHANCE.choice(everybody),
                        "step": CHANCE.choice([None, *range(9)]),
                    }
                )
                for _ in range(CHANCE.randint(2, 4))
            ]
            trial = bench.run(faults, (1, 2))
            aborted += len(trial.aborts)
            wrong += trial.crash is not None or not bench.is_correct(trial)
    assert not wrong, f"{wrong} of {count}"
    return f"{count} lives: no wrong sum, no other error, {aborted} exchanges ended without a sum"


LINES_OF_FAULTS = {
    "plain": "network: damage, cut or redirect a message",
    "plain_state": "network, silo: let a message be missing",
    "masked": "network: delay, repeat or mix messages",
    "masked_state": "silo: fall silent",
    "secagg": "network: change a message, or send it to another silo",
    "secagg_state": "silos: drop out in any phase",
    "exact": "silos: drop out in any phase",
    "private": "silo: send what is no list of ciphertexts",
    "oblivious": "any party: fall silent, or talk for ever",
    "shuffle": "silo: fall silent",
    "admm": "peer: fall silent, or send what no honest peer sends",
    "admm_masked": "peers: be left when others no longer answer",
}
PAGES = {"exact": "secagg_exact_noise", "private": "private_weighting", "oblivious": "README"}
for world, line in LINES_OF_FAULTS.items():
    page = PAGES.get(world, world.removesuffix("_state").removesuffix("_masked"))
    attack(page, line, f"two to four faults at once, drawn ({world})")(
        lambda world=world: lives(world)
    )
