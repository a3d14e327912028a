"""Means and quantiles of `fedpriv analyse` beside OpenDP alone, at epsilon 1 and delta 1e-5.

    python -m scripts.opendp_statistics [creditcard.csv]

Needs `pip install opendp`. Each number is the root mean square error over 100 seeds, in hundredths
of the column's bounds. OpenDP knows all records; it splits its budget equally among its queries.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from fedpriv.algorithms.statistics import Statistics
from fedpriv.data.embedded import BreastCancer
from fedpriv.encoding.fixed_point import FixedPoint
from fedpriv.runs.noise_choice import laplace_is_less
from fedpriv.testing.experiments import experiment
from fedpriv.util.streams import Streams

EPSILON, DELTA, SEEDS, STEPS = 1.0, 1e-5, 100, 256
GRID = FixedPoint(64, 1e6, 1)
SHARES = (0.25, 0.5, 0.75)
WORDS = (
    *("data=columns", "data.columns=[[x,0,1]]", "data.path=none.csv", "data.user=u"),
    *("allocator.n_silos=1", f"accountant.target={EPSILON:g}"),
)


def columns() -> Iterator[tuple[str, np.ndarray]]:
    """Names and values, as positions between public bounds."""
    x = BreastCancer().load(Streams(0)).train.x.astype(float)
    yield "breast_cancer, column 0", np.clip((x[:, 0] + 4) / 8, 0, 1)
    yield "breast_cancer, column 13", np.clip((x[:, 13] + 4) / 8, 0, 1)
    for path in sys.argv[1:]:
        table = np.genfromtxt(path, delimiter=",", skip_header=1, usecols=(1, 29), max_rows=5_000)
        yield "creditcard, V1", np.clip((table[:, 0] + 10) / 20, 0, 1)
        yield "creditcard, Amount", np.clip(table[:, 1] / 1000, 0, 1)


def ours(x: np.ndarray, statistic: str) -> Iterator[np.ndarray]:
    """The estimates of analyses of one statistic, whose users have one record each."""
    words = (f"algo.statistics=[{statistic}]", f"algo.steps={STEPS}")
    exp = experiment(*WORDS, *words)
    if laplace_is_less(exp, ()):
        exp = experiment(*WORDS, *words, "mechanism=laplace")
    algo, plan = exp.algo, exp.planner.plan(exp.federation)
    assert isinstance(algo, Statistics)
    share = algo.share(plan.mechanism)
    sums = algo.vectors(x[:, None], np.arange(len(x) + 1)).sum(axis=0)
    [placed] = algo.placed
    for seed in range(SEEDS):
        rng = np.random.default_rng(seed)
        noise = plan.mechanism.noise_share(algo.size, 1, rng, encoding=GRID) / share
        reach = plan.mechanism.spread(1) / share
        yield np.array([one.value for one in placed.part.estimates(sums + noise, reach)])


def opendp_ways(dp: Any) -> dict[str, Callable[[np.ndarray], np.ndarray]]:
    """OpenDP's ways to a mean, and to three quantiles, each of whole cost EPSILON and DELTA."""
    scalar = dp.atom_domain(T=float, nan=False), dp.absolute_distance(T=float)

    def gaussian(scale: float) -> Any:
        found = dp.c.make_zCDP_to_approxDP(dp.m.make_gaussian(*scalar, scale))
        return dp.c.make_fix_delta(found, DELTA)

    one = dp.binary_search_param(gaussian, 1.0, (EPSILON, DELTA), T=float)

    def mean(noise: Callable[[float], Any]) -> Callable[[np.ndarray], np.ndarray]:
        def found(x: np.ndarray) -> np.ndarray:
            total, number = noise(0.5)(float((x - 0.5).sum())), noise(1.0)(float(len(x)))
            return np.array([np.clip(0.5 + total / max(number, 1.0), 0, 1)])

        return found

    edges = np.linspace(0, 1, STEPS + 1)
    rows = dp.vector_domain(dp.atom_domain(T=float, nan=False)), dp.symmetric_distance()

    def candidates(x: np.ndarray) -> np.ndarray:
        values = []
        for share in SHARES:

            def made(scale: float, share: float = share) -> Any:
                pure = dp.max_divergence()
                return dp.m.make_private_quantile(*rows, pure, edges.tolist(), share, scale)

            scale = dp.binary_search_param(made, 1, EPSILON / len(SHARES), T=float)
            values.append(made(scale)(x.tolist()))
        return np.array(values)

    def tree(x: np.ndarray) -> np.ndarray:
        counts = dp.vector_domain(dp.atom_domain(T=int), size=STEPS), dp.l1_distance(T=int)
        grown = dp.t.make_b_ary_tree(*counts, leaf_count=STEPS, branching_factor=16)

        def made(scale: float) -> Any:
            return grown >> dp.m.then_laplace(scale)

        scale = dp.binary_search_param(made, 1, EPSILON, T=float)
        own = np.histogram(x, edges)[0].tolist()
        leaves = dp.t.make_consistent_b_ary_tree(branching_factor=16)(made(scale)(own))
        post = dp.t.make_quantiles_from_counts(edges.tolist(), list(SHARES), F=float)
        return np.array(post(list(map(float, leaves))[:STEPS]))

    return {
        "mean, Gaussian": mean(lambda gap: dp.m.make_gaussian(*scalar, one * gap * math.sqrt(2))),
        "mean, Laplace": mean(lambda gap: dp.m.make_laplace(*scalar, 2 * gap / EPSILON)),
        "quantiles, candidates": candidates,
        "quantiles, tree": tree,
    }


def main() -> None:
    """Print the table."""
    import opendp.prelude as dp  # type: ignore[import-not-found, unused-ignore]

    dp.enable_features("contrib", "honest-but-curious")
    ways = opendp_ways(dp)
    for name, x in columns():
        ordered = np.sort(x)
        quantiles = [ordered[math.ceil(share * len(x)) - 1] for share in SHARES]
        true = {"mean": np.array([x.mean()]), "quantiles": np.array(quantiles)}
        found = {
            "fedpriv mean": [found[:1] - true["mean"] for found in ours(x, "mean")],
            "fedpriv quantiles": [found - true["quantiles"] for found in ours(x, "quantiles")],
        }
        for way, run in ways.items():
            found[way] = [run(x) - true[way.split(",")[0]] for _ in range(SEEDS)]
        print(name, len(x), flush=True)
        for way, errors in found.items():
            print(f"  {way:<24} {100 * math.sqrt(np.square(errors).mean()):.3f}")


if __name__ == "__main__":
    main()
