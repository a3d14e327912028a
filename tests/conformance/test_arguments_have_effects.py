"""Every argument of every method changes the run or its epsilon, or a command line that sets it is
refused."""

import re
from pathlib import Path

import numpy as np
import pytest

from fedpriv.accountants.ledger import Ledger
from fedpriv.errors import ConfigError
from fedpriv.rounds.query import events_of
from fedpriv.runtime import prepare
from fedpriv.testing import experiment

FILES = sorted((Path(__file__).parents[2] / "conf" / "algo").glob("*.yaml"))
NO_TRAINING = ("statistics", "evaluation")
METHODS = [
    path.stem
    for path in FILES
    if path.stem not in NO_TRAINING and re.search("^_target_:", path.read_text(), re.MULTILINE)
]
"""Without files that only set another file's keys, and methods that train nothing."""
ROUNDS = 4
BASE = (
    "preset.n_users=8",
    "preset.local_epochs=1",
    "preset.silo_epochs=1",
    "accountant=rdp",
    f"rounds={ROUNDS}",
)
OTHER = {
    "adaptivity": 0.3,
    "anchor_batch_size": 9,
    "batch_size": 7,
    "broadcast_all": True,
    "budgets": "{a:{epsilon:1,share:1}}",
    "calibration": "paper",
    "chords": 1.0,
    "clip": 0.037,
    "cohort": 2,
    "colluders": 2,
    "correlated": 0.3,
    "cycle": 2,
    "delta": 1e-4,
    "difference_noise": 3.0,
    "epochs": 1,
    "epsilon": 3.0,
    "epsilons": "[1,3,10]",
    "feature_norm": 0.7,
    "global_lr": 0.37,
    "gradient_share": 0.3,
    "group_size": "3",
    "growth": 2.0,
    "init_weights": "shared",
    "inner_steps": 2,
    "keep_optimizer": True,
    "least_cohort": 1,
    "local_epochs": 2,
    "local_lr": 0.037,
    "local_steps": 3,
    "momentum": 0.3,
    "noise_multiplier": 1.7,
    "observer": "'released model'",
    "participation": "uniform",
    "phase": 2,
    "phases": 2,
    "prox": "l1",
    "prox_group": 2,
    "prox_size": 0.3,
    "proximal": 0.3,
    "records_per_user": 3,
    "regularisation": 0.3,
    "released": "uniform",
    "rounds": ROUNDS + 1,
    "rule": "yogi",
    "sampling": "poisson",
    "second_moment": 0.3,
    "smoothness": 3.0,
    "strong_convexity": 0.3,
    "user_rate": 0.5,
    "variant": "alternate",
    "weighting": "records",
}
"""Another legal value of each argument."""
OTHER_OF = {"local_sgd": {"participation": "balanced"}, "prox_pl_svrg": {"released": "last"}}
"""The same where that value is a method's default."""
GIVEN = ("algo.calibration=given", "algo.noise_multiplier=1")
FIRST = {
    "decor": (
        *("preset.n_silos=4", "algo.rounds=4"),
        *GIVEN,
    ),
    "prox_pl_svrg": ("algo.inner_steps=2", "algo.epochs=2"),
    "spider": GIVEN,  # its noise is solved for in a second
}
"""What a method needs, so that few rounds show an effect in little time."""
BUDGETS = ("algo.budgets={a:{epsilon:3,share:0.5},b:{epsilon:9,share:0.5}}", "algo.rounds=4")
SETTINGS = {
    "cdp_fedavg": [GIVEN, ("algo.cohort=2",), ("algo.calibration=paper",)],
    "decor": [("preset.n_silos=4",)],
    "dp_erm": [GIVEN, ("algo.calibration=paper",)],
    "fedopt": [("algo.rule=momentum",), ("algo.rule=adagrad",)],
    "local_sgd": [GIVEN],
    "localized_mb_sgd": [GIVEN],
    "minibatch_sgd": [GIVEN, ("algo.prox=group_l1",), ("algo.prox=ball", "algo.cohort=2")],
    "mr_mtl": [("algo.epsilons=[3,9,9]",)],
    "prox_pl_svrg": [GIVEN, ("algo.released=last",)],
    "uldp_avg": [BUDGETS],
    "spider": [(), ("algo.variant=alternate",), ("algo.phase=1",)],
}
"""Further settings under which each argument is varied."""
CASES = [(method, FIRST.get(method, ())) for method in METHODS] + [
    pytest.param(method, words, marks=pytest.mark.slow)
    for method, all_words in SETTINGS.items()
    for words in all_words
]


def shown(*words):
    """All that a run shows, one after the other: its models after each round, its epsilons, and
    whose epsilon it reports first."""
    exp = experiment(*BASE, *words)
    ledger = Ledger(exp.accountant)
    with prepare(exp) as run:
        state = run.state
        for number in range(1, ROUNDS + 1):
            queries = run.queries(number)
            ledger.record(events_of(queries))
            state = run.run_round(queries, state).state
            yield np.asarray(exp.algo.evaluated(state, run.standing.silo_states)).tobytes()
    yield [tuple(vars(row).values()) for row in ledger.rows(ROUNDS)], exp.algo.headline_observer


@pytest.mark.parametrize(("method", "words"), CASES)
def test_each_argument_has_an_effect_or_is_refused(method, words):
    words = (f"algo={method}", *words)
    before = list(map(repr, shown(*words)))
    path = next(path for path in FILES if path.stem == method)
    lines = path.read_text().partition("_target_:")[2].splitlines()[1:]
    names = [line.split(":")[0] for line in lines if line[:1].isalpha()]
    set_already = {word.split("=")[0] for word in words}
    unchanged = []
    for name in names:
        if f"algo.{name}" in set_already:
            continue
        if name == "observer" and "feature_norm" in names:
            continue  # without a bound on the sum all observers cost the same, as epsilons say
        value = OTHER_OF.get(method, {}).get(name, OTHER[name])
        word = f"algo.{name}={value}"
        try:
            after = map(repr, shown(*words, word))  # as far as the first difference
            unchanged += [word] * all(map(str.__eq__, before, after))
        except ConfigError:
            continue
    assert not unchanged
