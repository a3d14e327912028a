"""The methods of the study: who they are, which words run them, and the noise that certifies an
epsilon.

All are compared at the epsilon of the released model under replacement of one unit, which every
method has a valid certificate for: methods of add/remove by two steps of it
(`fedpriv.accountants.replaced`), methods that protect records by what k records move together,
where a user is asked for, and user-level methods as they are where a record is, since whoever hides
a user hides each of its records.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from fedpriv.accountants.calibrate import smallest_noise
from fedpriv.accountants.events import RELEASED_MODEL
from fedpriv.accountants.ledger import Ledger
from fedpriv.accountants.replaced import replaced
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
RECORDS_PER_USER = 4
"""k, fixed without a look at the data."""


K = "algo.records_per_user"
Rate = Callable[[float, int], tuple[str, ...]]
"""The words of a step size for a number of silos: of a step along the mean of clipped vectors, or
of local steps."""


@dataclass(frozen=True, eq=False)
class Method:
    """A method and how it is run.

    paper: whose.
    unit: whom the paper protects.
    words: what is the same in every run.
    units: further words, by the unit that is protected.
    solved: its noise multiplier is searched for; else the method makes its noise for algo.epsilon.
    as_it_stands: its bound under add/remove holds for replacement too.
    """

    name: str
    paper: str
    unit: str
    words: tuple[str, ...]
    rate: Rate
    units: Mapping[str, tuple[str, ...]] = field(default_factory=lambda: {USER: ()})
    solved: bool = True
    as_it_stands: bool = False

    @property
    def private(self) -> bool:
        return self.unit != NOTHING

    def clip(self, value: float) -> tuple[str, ...]:
        return (f"algo.clip={value:g}",) if self.private else ()

    def noise(self, experiment: tuple[str, ...], unit: str, epsilon: float) -> tuple[str, ...]:
        """The words with which the released model costs `epsilon`.

        experiment: words of what it is run on.
        """
        if not self.private:
            return ()
        if not self.solved:
            return (
                f"algo.epsilon={epsilon:g}",
                "algo.calibration=certified",
                f"algo.observer='{RELEASED_MODEL}'",
            )
        words = (*experiment, *self.words, *self.units[unit], *self.rate(1.0, 1))
        planned = EpsilonForecast.of(one_experiment(*words, "seed=0", "algo.noise_multiplier=1"))
        found = smallest_noise(lambda z: self.certified(planned.with_noise(z), unit), epsilon)
        return (f"algo.noise_multiplier={found:.6g}",)

    def certified(
        self, planned: EpsilonForecast, unit: str, observer: str = RELEASED_MODEL
    ) -> float:
        """Epsilon of an observer under replacement of `unit`, after all rounds."""
        ledger = Ledger(planned.exp.accountant)
        rounds = planned.exp.options.rounds
        for number in range(1, rounds + 1):
            for query in planned.exp.algo.queries(number, planned.plan):
                seen = [
                    event
                    for event in query.events
                    if (event.observer, event.unit) == (observer, unit)
                ]
                ledger.record(seen if self.as_it_stands else map(replaced, seen))
        return min(row.certified for row in ledger.rows(rounds))


def _global(rate: float, silos: int) -> tuple[str, ...]:
    return (f"algo.global_lr={rate:g}",)


def _local(rate: float, silos: int) -> tuple[str, ...]:
    return (f"algo.local_lr={rate:g}",)


def _mean_user(rate: float, silos: int) -> tuple[str, ...]:
    """Uldp-FL divides the sum over silos, in which a user's weights add up to 1, by the number of
    silos once more."""
    return (f"algo.global_lr={rate * silos:g}",)


def _descent(rate: float, silos: int) -> tuple[str, ...]:
    """DP-ERM's first step is 1 / (4 L)."""
    return (f"algo.smoothness={1 / (4 * rate):.6g}",)


def _of_records(name: str, paper: str, *words: str, rate: Rate, **how: Any) -> Method:
    """A method that protects records, and users of at most k of them."""
    units = {USER: (f"{K}={RECORDS_PER_USER}",), RECORD: (f"{K}=null",)}
    return Method(name, paper, RECORD, ("aggregation=plain", *words), rate, units, **how)


def _yardstick(name: str, paper: str, *words: str, rate: Rate = _local) -> Method:
    return Method(name, paper, NOTHING, words, rate, {NOTHING: ()})


ALL_RECORDS = 10**4
"""More than any user or silo has."""
BOUNDED = "algo.feature_norm=1"
"""As the model scales records anyway; said again, it certifies more."""
_GROUP = Method(
    "ULDP-GROUP",
    KATO,
    USER,
    ("algo=uldp_group", f"algo.batch_size={ALL_RECORDS}"),
    _local,
    {
        USER: (f'algo.group_size="{RECORDS_PER_USER}"',),
        RECORD: (f'algo.group_size="{ALL_RECORDS}"',),
    },
)
_MINIBATCH = _of_records("MB-SGD", LOWY, "algo=minibatch_sgd", rate=_global, solved=False)
METHODS = (
    Method("ULDP-NAIVE", KATO, USER, ("algo=uldp_naive",), _global, as_it_stands=True),
    _GROUP,
    Method("ULDP-SGD", KATO, USER, ("algo=uldp_sgd",), _mean_user),
    Method("ULDP-AVG", KATO, USER, ("algo=uldp_avg",), _mean_user),
    Method("ULDP-AVG-w", KATO, USER, ("algo=uldp_avg_w",), _mean_user),
    _of_records("CDP-FedAvg", HU, "algo=cdp_fedavg_5", BOUNDED, rate=_local, solved=False),
    _of_records("DP-SGD", HU, "algo=dp_sgd", BOUNDED, rate=_local, solved=False),
    _of_records(
        "DP-ERM",
        HUANG,
        "algo=dp_erm",
        "algo.calibration=given",
        "algo.strong_convexity=0.005",
        rate=_descent,
    ),
    _MINIBATCH,
    _of_records("SPIDER", LOWY, "algo=spider", rate=_global, solved=False),
    _of_records("Prox-SGD", LOWY, "algo=prox_sgd", rate=_global, solved=False),
    _of_records(
        "Prox-SVRG", LOWY, "algo=prox_svrg", "algo.released=last", rate=_global, solved=False
    ),
    _of_records("Prox-PL-SVRG", LOWY, "algo=prox_pl_svrg", rate=_global, solved=False),
    _of_records("Local SGD", LOWY, "algo=local_sgd", BOUNDED, rate=_local, solved=False),
    _yardstick("FedAvg", "McMahan et al.", "algo=fedavg"),
    _yardstick("FedProx", "Li et al.", "algo=fedprox"),
    _yardstick("SCAFFOLD", "Karimireddy et al.", "algo=scaffold"),
    _yardstick("FedAdam", "Reddi et al.", "algo=fedopt", rate=_global),
    _yardstick(
        "SecureD-FL", JEON, "algo=secured_fl", "aggregation=admm", "aggregation.masking=true"
    ),
    replace(_GROUP, name="ULDP-GROUP with k=1", units={USER: ('algo.group_size="1"',)}),
    replace(_MINIBATCH, name="MB-SGD with k=1", units={USER: (f"{K}=1",)}),
)
"""The last two look at how much hangs on k."""
