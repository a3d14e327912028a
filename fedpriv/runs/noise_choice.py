"""Which noise a private analysis has, unless its command line says: the least for its target."""

from __future__ import annotations

from collections.abc import Container

from fedpriv.algorithms.sums_of_parts import SumsOfParts
from fedpriv.mechanisms.calibration import gaussian_noise
from fedpriv.mechanisms.gaussian import Gaussian
from fedpriv.mechanisms.laplace import Laplace
from fedpriv.settings.experiment import Experiment


def laplace_is_less(experiment: Experiment, named: Container[str]) -> bool:
    """Whether Laplace noise on the estimates reaches less far than Gaussian noise that costs the
    target as well. Only public numbers decide.

    With a ledger the noise stays Gaussian. A ledger adds up Renyi divergences, and there Laplace
    releases cost more than as many Gaussian ones of the same epsilon.

    experiment: with Gaussian noise.
    named: the keys of its command line; a mechanism that is named stays.
    """
    algo, epsilon = experiment.algo, experiment.accountant.target
    stays = "mechanism" in named or experiment.options.ledger is not None
    if stays or epsilon is None or not isinstance(algo, SumsOfParts):
        return False
    plan = experiment.planner.draft(experiment.federation)
    gaussian = Gaussian(algo.clip, gaussian_noise(1.0, epsilon, experiment.accountant.delta))
    laplace = Laplace(algo.clip, 1 / epsilon)
    reached = [one.spread(plan.n_summed) / algo.share(one) for one in (gaussian, laplace)]
    return plan.parameters.n_most is None and reached[1] < reached[0]
