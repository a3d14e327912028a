"""The kit itself: what a method with noise inside its local training cannot get past it."""

from dataclasses import dataclass, fields, replace

import dp_accounting as dp
import pytest

from fedpriv.accountants.events import ADD_REMOVE, Event
from fedpriv.algorithms.uldp_group import UldpGroup
from fedpriv.testing import ConformanceError, check_algorithm, experiment
from fedpriv.testing.algorithms import ConformanceReport
from fedpriv.testing.event_parameters import noise_multiplier
from fedpriv.testing.experiments import SMALL


@pytest.mark.parametrize(
    ("event", "group", "expected"),
    [
        (dp.GaussianDpEvent(6.0), 1, 6.0),
        (dp.PoissonSampledDpEvent(0.1, dp.GaussianDpEvent(6.0)), 1, 6.0),
        (dp.SelfComposedDpEvent(dp.PoissonSampledDpEvent(0.1, dp.GaussianDpEvent(6.0)), 4), 1, 3.0),
        (dp.SelfComposedDpEvent(dp.SelfComposedDpEvent(dp.GaussianDpEvent(6.0), 2), 2), 3, 1.0),
        (dp.ZCDpEvent(0.5), 1, 1.0),
        (dp.NonPrivateDpEvent(), 2, float("inf")),
        (dp.LaplaceDpEvent(1.0), 1, None),
    ],
)
def test_what_counts_as_a_gaussian_release(event, group, expected):
    assert (
        noise_multiplier(Event("server", "user", ADD_REMOVE, event, None, group_size=group))
        == expected
    )


@dataclass(frozen=True)
class Quiet(UldpGroup):
    """Adds half of the noise that its events declare: three silos together add enough, none does
    alone."""

    part = 0.5

    def local_update(self, silo, query, down):
        mechanism = query.mechanism.with_noise(query.mechanism.noise_multiplier * self.part)
        return super().local_update(silo, replace(query, mechanism=mechanism), down)


@dataclass(frozen=True)
class Loose(UldpGroup):
    """Clips at 50 times the bound that its noise is made for."""

    def local_update(self, silo, query, down):
        mechanism = query.mechanism
        loose = replace(
            mechanism.with_noise(mechanism.noise_multiplier / 50), clip=50 * mechanism.clip
        )
        return super().local_update(silo, replace(query, mechanism=loose), down)


TOO_MUCH = [
    (Quiet, "from the file to the noise: user, add/remove: 2 times the distance"),
    (Loose, "from the file to the noise: user, add/remove: 50 times the distance"),
]


@pytest.mark.parametrize(("cls", "why"), TOO_MUCH)
def test_dp_sgd_that_promises_too_much_fails(cls, why):
    one_epoch = "preset.local_epochs=1", "preset.silo_epochs=1"
    honest = experiment(*SMALL, *one_epoch, "algo=uldp_group", "algo.clip=0.1").algo
    values = {field.name: getattr(honest, field.name) for field in fields(honest)}
    with pytest.raises(ConformanceError, match=why):
        check_algorithm(cls(**values))


def test_a_report_is_lines_for_a_person():
    report = ConformanceReport(("weights", "update: user, add/remove"), ("b: user, Laplace",))
    assert str(report).splitlines() == [
        "passed: The weights of a unit are never negative and add up to at most 1.",
        "passed: The added noise is what the certificate says: update: user, add/remove.",
        "NOT measured, and taken at your word: b: user, Laplace",
        "all rules hold; some noise was not measured",
    ]
