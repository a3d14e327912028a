"""The noise with which a gradient method meets its target epsilon."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from fedpriv.accountants.events import REPLACE
from fedpriv.certificates.calibrate import certified_noise, count_releases
from fedpriv.certificates.noise import SiloNoise
from fedpriv.certificates.release import Release
from fedpriv.certificates.request import ObservedRelease, Target, observed_releases
from fedpriv.mechanisms.base import Mechanism
from fedpriv.mechanisms.calibration import noise_for_rho
from fedpriv.rounds.plan import Plan

if TYPE_CHECKING:
    from fedpriv.algorithms.base import Algorithm
    from fedpriv.algorithms.gradient_method import GradientMethod

RECORD = Target("record", REPLACE)


def claimed_noise(method: GradientMethod, draft: Plan) -> dict[str, float]:
    """The paper's noise multiplier of each query name. Its formula ignores the other names."""
    claims = method.claims
    assert claims is not None  # methods without constants refuse calibration=paper
    rho = claims.rho_for(method.epsilon, method.delta)
    sizes = draft.federation.silo_records
    return {
        name: noise_for_rho(
            method.counted(name) * max(method.claimed_rho(name, n, 1.0) for n in sizes), rho
        )
        for name in draft.query_parameters
    }


def noise_for_target(
    method: GradientMethod,
    algo: Algorithm,
    draft: Plan,
    release: Callable[[ObservedRelease], Release],
    mechanisms: Mapping[str, Mechanism],
) -> dict[str, float]:
    """The certified noise multipliers by query name: one budget for all releases that a record is
    in. Without amplification the budget is spent exactly.

    method: has the target, and the sampling of batches.
    algo: whose requests are certified: the method, or its form with one contribution a record.
    draft: the plan with the mechanisms as configured.
    release: what the method's observer sees of one record.
    mechanisms: mechanism of each query name.
    """
    observer = draft.observer(method.observer)
    views = (
        view
        for round in range(1, method.rounds + 1)
        for request in algo.requests(round, draft)
        for view in observed_releases(
            request, draft, algo.contributors, [RECORD], [observer], round
        )
    )
    return certified_noise(
        count_releases(views, lambda view: release(view).of(method.protected)),
        {name: method.share(name) for name in mechanisms},
        mechanisms,
        sampling=method.grouped,
        adjacency=method.batches.adjacency,
        epsilon=method.epsilon,
        delta=method.delta,
    )


def silo_release(view: ObservedRelease) -> Release:
    """The noised mean of a silo, as an observer sees it."""
    noise = view.request.noise
    assert isinstance(noise, SiloNoise)
    release, _, _ = noise.seen(view)
    return release
