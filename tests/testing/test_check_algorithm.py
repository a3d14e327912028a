"""The kit itself: what a method with noise inside its local training cannot get past it."""

from dataclasses import dataclass, fields, replace

import dp_accounting as dp
import numpy as np
import pytest

from fedpriv.accountants.events import ADD_REMOVE, Event
from fedpriv.algorithms.cdp_fedavg import CdpFedAvg
from fedpriv.algorithms.prox_sgd import MinibatchSgd
from fedpriv.algorithms.uldp_group import UldpGroup
from fedpriv.certificates.sampling import Poisson, WithoutReplacement
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
        (dp.LaplaceDpEvent(3.0), 2, 1.5),
        (dp.SelfComposedDpEvent(dp.LaplaceDpEvent(1.0), 2), 1, None),
    ],
)
def test_what_counts_as_a_gaussian_or_laplace_release(event, group, expected):
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


@dataclass(frozen=True)
class TwiceAsMany(Poisson):
    """Draws twice as many records as declared."""

    def rows(self, silo, query, size):
        return super().rows(silo, query, 2 * size)


@dataclass(frozen=True)
class OneBatch(WithoutReplacement):
    """Draws once for all rounds."""

    def rows(self, silo, query, size):
        return super().rows(silo, replace(query, round=1), size)


@dataclass(frozen=True)
class ByNorm(WithoutReplacement):
    """Prefers records with large features."""

    def rows(self, silo, query, size):
        coins = np.random.default_rng(query.round).random(len(silo.data.x))
        norms = np.linalg.norm(np.asarray(silo.data.x), axis=1)
        return np.sort(np.argsort(coins / norms)[:size])


@dataclass(frozen=True)
class Again(WithoutReplacement):
    """Puts records back after each draw."""

    def rows(self, silo, query, size):
        rng = np.random.default_rng([query.round, silo.index])
        return rng.integers(0, len(silo.data.x), size)


@dataclass(frozen=True)
class OfBatches(MinibatchSgd):
    """MB-SGD with other batches than its events declare."""

    own = None

    @property
    def batches(self):
        return self.own()


class Doubled(OfBatches):
    own = TwiceAsMany


class Repeated(OfBatches):
    own = OneBatch


class Preferred(OfBatches):
    own = ByNorm


class PutBack(OfBatches):
    own = Again


@dataclass(frozen=True)
class BySize(MinibatchSgd):
    """Divides by the number of records that were drawn, not by its mean."""

    def local_update(self, silo, query, down):
        size = self.size(query.name, silo.public_records)
        drawn = max(1, len(self.batches.rows(silo, query, size)))
        job = super().local_update(silo, query, down)
        return job.map(lambda own: replace(own, vectors=own.vectors * (size / drawn)))


@dataclass(frozen=True)
class TouchedOnce(CdpFedAvg):
    """Declares several passes over the records as one."""

    def _noisy_steps(self, records):
        return replace(super()._noisy_steps(records), touched=1)


MB = ("algo=minibatch_sgd", "algo.batch_size=4")
GIVEN = ("algo.calibration=given", "algo.noise_multiplier=1")
PASSES = ("algo=cdp_fedavg", "algo.batch_size=4", "algo.local_steps=40")
OFTEN = "share of records in a sample of gradient: measured"
WRONG_BATCHES = [
    (Doubled, (*MB, "algo.sampling=poisson"), OFTEN),
    (Repeated, MB, "share of records in a sample of gradient, often and twice in a row"),
    (Preferred, MB, "share of records in a sample of gradient, unit"),
    (PutBack, MB, "record, replace: 2 times the distance"),
    (BySize, (*MB, "algo.sampling=poisson"), "record, add/remove: 4 times the distance"),
    (TouchedOnce, PASSES, "record, replace: 2 times the distance"),
]


@pytest.mark.parametrize(
    ("cls", "words", "why"),
    [one if one[0] is Preferred else pytest.param(*one, marks=pytest.mark.slow)
     for one in WRONG_BATCHES],
)  # fmt: skip
def test_batches_other_than_declared_fail(cls, words, why):
    honest = experiment(*SMALL, *words, *GIVEN).algo
    with pytest.raises(ConformanceError, match=why):
        check_algorithm(
            cls(**{field.name: getattr(honest, field.name) for field in fields(honest)})
        )


@pytest.mark.slow
@pytest.mark.parametrize(
    "words",
    [MB, (*MB, "algo.sampling=poisson"), PASSES, ("algo=localized_mb_sgd", "rounds=4")],
)
def test_batches_as_declared_pass(words):
    report = check_algorithm(experiment(*SMALL, *words, *GIVEN).algo)
    assert report.missing == ("other data",)


def test_a_report_is_lines_for_a_person():
    report = ConformanceReport(("weights", "update: user, add/remove"), ("b: user, Laplace",))
    assert str(report).splitlines() == [
        "passed: The weights of a unit are never negative and add up to at most 1.",
        "passed: The added noise is what the certificate says: update: user, add/remove.",
        "NOT measured, and taken at your word: b: user, Laplace",
        "all rules hold; not measured: some noise",
    ]
