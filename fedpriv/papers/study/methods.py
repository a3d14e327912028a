"""The methods of the study: their overrides, and the noise that certifies an epsilon.

All methods are compared at the epsilon of the released model under replacement of one unit. Every
method has a valid certificate for it:

- a method with add/remove adjacency: two steps of it (`fedpriv.accountants.group.replaced`);
- a method that protects records, where the unit is a user: the change by a user's k records;
- a user-level method, where the unit is a record: its user certificate, since hiding a user hides
  each of its records.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from fedpriv.accountants.calibrate import smallest_noise
from fedpriv.accountants.events import RELEASED_MODEL
from fedpriv.accountants.group import replaced
from fedpriv.accountants.ledger import Ledger
from fedpriv.runs.epsilon_forecast import EpsilonForecast
from fedpriv.settings.compose import one_experiment

USER = "user"
RECORD = "record"
NOTHING = "none"
KATO = "Kato et al."
HU = "Hu et al."
HUANG = "Huang"
LOWY = "Lowy et al."
JEON = "Jeon et al."
REDDI = "Reddi et al."
RECORDS_PER_USER = 4
"""k, fixed before any look at the data."""
K = "algo.records_per_user"
Rate = Callable[[float, int], tuple[str, ...]]
"""The overrides of a step size, for a number of silos."""


@dataclass(frozen=True, eq=False)
class Method:
    """A method and how to run it.

    name: in tables.
    paper: its authors.
    unit: that the paper protects.
    words: overrides of every run.
    rate: overrides of a step size.
    first: step size in the middle of those that are tried first: the choice of an earlier study.
    units: further overrides, by the unit that is protected.
    search_noise: whether the noise multiplier is searched for; otherwise the method makes its noise
        for algo.epsilon.
    covers_replacement: whether its bound under add/remove holds for replacement too.
    """

    name: str
    paper: str
    unit: str
    words: tuple[str, ...]
    rate: Rate
    first: float
    units: Mapping[str, tuple[str, ...]] = field(default_factory=lambda: {USER: ()})
    search_noise: bool = True
    covers_replacement: bool = False

    @property
    def private(self) -> bool:
        return self.unit != NOTHING

    def clip(self, value: float) -> tuple[str, ...]:
        return (f"algo.clip={value:g}",) if self.private else ()

    def noise(self, experiment: tuple[str, ...], unit: str, epsilon: float) -> tuple[str, ...]:
        """The overrides with which the released model costs `epsilon`.

        experiment: overrides of the experiment.
        unit: that the noise protects.
        """
        if not self.private:
            return ()
        if not self.search_noise:
            observer = f"algo.observer='{RELEASED_MODEL}'"
            return (f"algo.epsilon={epsilon:g}", "algo.calibration=certified", observer)
        words = (*experiment, *self.words, *self.units[unit], *self.rate(1.0, 1))
        forecast = EpsilonForecast.of(one_experiment(*words, "seed=0", "algo.noise_multiplier=1"))
        found = smallest_noise(lambda z: self.certified(forecast.with_noise(z), unit), epsilon)
        return (f"algo.noise_multiplier={found:.6g}",)

    def certified(
        self, forecast: EpsilonForecast, unit: str, observer: str = RELEASED_MODEL
    ) -> float:
        """An observer's epsilon under replacement of `unit`, after all rounds."""
        ledger = Ledger(forecast.exp.accountant)
        rounds = forecast.exp.options.rounds
        for number in range(1, rounds + 1):
            for query in forecast.exp.algo.queries(number, forecast.plan):
                seen = [e for e in query.events if (e.observer, e.unit) == (observer, unit)]
                ledger.record(seen if self.covers_replacement else map(replaced, seen))
        return min(row.certified for row in ledger.rows(rounds))


def _global(rate: float, silos: int) -> tuple[str, ...]:
    return (f"algo.global_lr={rate:g}",)


def _local(rate: float, silos: int) -> tuple[str, ...]:
    return (f"algo.local_lr={rate:g}",)


def _mean_user(rate: float, silos: int) -> tuple[str, ...]:
    """A user's weights sum to 1 over silos, but Uldp-FL divides the sum by the number of silos
    again."""
    return (f"algo.global_lr={rate * silos:g}",)


def _descent(rate: float, silos: int) -> tuple[str, ...]:
    """DP-ERM's first step size is 1 / (4 L)."""
    return (f"algo.smoothness={1 / (4 * rate):.6g}",)


def _half_way(rate: float, silos: int) -> tuple[str, ...]:
    """MR-MTL's pull takes each step half of the way to the silos' mean."""
    return (*_local(rate, silos), f"algo.proximal={1 / (2 * rate):.6g}")


def _record_level(
    name: str, paper: str, *words: str, rate: Rate, first: float, **how: Any
) -> Method:
    """A method that protects records, and users with at most k records."""
    units = {USER: (f"{K}={RECORDS_PER_USER}",), RECORD: (f"{K}=null",)}
    return Method(name, paper, RECORD, ("aggregation=plain", *words), rate, first, units, **how)


def _baseline(name: str, paper: str, *words: str, rate: Rate = _local, first: float = 3) -> Method:
    """A non-private method."""
    return Method(name, paper, NOTHING, words, rate, first, {NOTHING: ()})


ALL_RECORDS = 10**4
"""More records than any user or silo has."""
BOUNDED = "algo.feature_norm=1"
"""The model scales records to this norm anyway. Stated here, it gives a smaller certificate."""
METHODS = (
    Method("ULDP-NAIVE", KATO, USER, ("algo=uldp_naive",), _global, 0.1, covers_replacement=True),
    Method(
        "ULDP-GROUP",
        KATO,
        USER,
        ("algo=uldp_group", f"algo.batch_size={ALL_RECORDS}"),
        _local,
        1,
        {
            USER: (f'algo.group_size="{RECORDS_PER_USER}"',),
            RECORD: ("algo.group_size=all",),
        },
    ),
    Method("ULDP-SGD", KATO, USER, ("algo=uldp_sgd",), _mean_user, 10),
    Method("ULDP-AVG", KATO, USER, ("algo=uldp_avg",), _mean_user, 10),
    Method("ULDP-AVG-w", KATO, USER, ("algo=uldp_avg_w",), _mean_user, 10),
    Method("robust ULDP-AVG", KATO, USER, ("algo=uldp_avg", "aggregation=robust"), _mean_user, 10),
    Method(
        "adaptive ULDP-AVG-w",
        KATO,
        USER,
        ("algo=uldp_avg_w", "mechanism=adaptive"),
        _mean_user,
        10,
    ),
    Method("ULDP-OPT", REDDI, USER, ("algo=uldp_opt",), _global, 0.1),
    Method(
        "DP-FTRL",
        "Kairouz et al.",
        USER,
        ("algo=uldp_opt", "algo.rule=momentum", "algo.cycle=4", "mechanism=correlated"),
        _global,
        0.3,
    ),
    _record_level(
        "CDP-FedAvg", HU, "algo=cdp_fedavg_5", BOUNDED, rate=_local, first=1, search_noise=False
    ),
    _record_level("DP-SGD", HU, "algo=dp_sgd", BOUNDED, rate=_local, first=10, search_noise=False),
    _record_level(
        "DP-ERM",
        HUANG,
        "algo=dp_erm",
        "algo.calibration=given",
        "algo.strong_convexity=0.005",
        rate=_descent,
        first=3,
    ),
    _record_level("MB-SGD", LOWY, "algo=minibatch_sgd", rate=_global, first=3, search_noise=False),
    _record_level("SPIDER", LOWY, "algo=spider", rate=_global, first=1, search_noise=False),
    _record_level("Prox-SGD", LOWY, "algo=prox_sgd", rate=_global, first=1, search_noise=False),
    _record_level(
        "Prox-SVRG",
        LOWY,
        "algo=prox_svrg",
        "algo.released=last",
        rate=_global,
        first=1,
        search_noise=False,
    ),
    _record_level(
        "Prox-PL-SVRG", LOWY, "algo=prox_pl_svrg", rate=_global, first=1, search_noise=False
    ),
    _record_level(
        "Local SGD", LOWY, "algo=local_sgd", BOUNDED, rate=_local, first=0.03, search_noise=False
    ),
    _record_level(
        "Localized MB-SGD",
        "Gao et al.",
        "algo=localized_mb_sgd",
        "algo.phases=2",
        rate=_global,
        first=3,
        search_noise=False,
    ),
    Method(
        "MR-MTL",
        "Liu et al.",
        RECORD,
        ("algo=mr_mtl", f"algo.batch_size={ALL_RECORDS}"),
        _half_way,
        3,
        {RECORD: ()},
    ),
    _baseline("FedAvg", "McMahan et al.", "algo=fedavg"),
    _baseline("FedProx", "Li et al.", "algo=fedprox"),
    _baseline("SCAFFOLD", "Karimireddy et al.", "algo=scaffold"),
    _baseline("FedAdam", REDDI, "algo=fedopt", rate=_global, first=0.1),
    _baseline(
        "SecureD-FL", JEON, "algo=secured_fl", "aggregation=admm", "aggregation.masking=true"
    ),
    _baseline("each silo alone", "", "algo=local_only"),
)
