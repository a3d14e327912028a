"""Messages made as rows of one matrix, held against those of one silo after the other."""

from contextlib import contextmanager
from dataclasses import replace

import numpy as np
import pytest

from fedpriv.aggregation.masked import Masked
from fedpriv.aggregation.plain import Plain, PlainSilo
from fedpriv.aggregation.weighted import NoisedSum
from fedpriv.engines.inprocess import InProcess
from fedpriv.runtime import prepare
from fedpriv.testing import experiment
from fedpriv.testing.faults import Faulty, drop

DEVICES = "algo=uldp_avg", "data=artificial", "allocator=equal", "allocator.local_test=0"


def devices(n, *words):
    """The experiment with n silos of one user each."""
    return experiment(*DEVICES, f"preset.n_silos={n}", f"data.size={10 * n}", *words)


@contextmanager
def counted(monkeypatch, *, one_by_one=False):
    """The sizes of the batches that are made together; with `one_by_one` each silo makes its
    own message, as the protocol says."""
    sizes = []
    together = NoisedSum.run_batch

    def batch(works):
        sizes.append(len(works))
        return [work.run() for work in works] if one_by_one else together(works)

    with monkeypatch.context() as patched:
        patched.setattr(NoisedSum, "run_batch", staticmethod(batch))
        yield sizes


def rounds(exp, number=2, spoil=lambda run: None):
    """Parameters after each round, statistics, traffic and reasons of aborts."""
    seen = []
    with prepare(exp) as run:
        spoil(run)
        state = run.state
        for round in range(1, number + 1):
            result = run.run_round(run.queries(round), state)
            state = result.state
            seen.append((state.params.tobytes(), result.stats, result.traffic, result.aborted))
    return seen


def assert_same(exp, monkeypatch, number=2, spoil=lambda run: None, batches=None):
    with counted(monkeypatch) as sizes:
        together = rounds(exp, number, spoil)
    with counted(monkeypatch, one_by_one=True):
        one_by_one = rounds(exp, number, spoil)
    assert together == one_by_one
    if batches is not None:
        assert sizes == batches
    return together


@pytest.mark.parametrize("aggregation", ["plain", "masked", "secagg", "admm"])
def test_every_aggregation_of_weighted_sums_has_the_bits_of_one_silo_after_the_other(
    aggregation, monkeypatch
):
    seen = assert_same(devices(9, f"aggregation={aggregation}"), monkeypatch, batches=[9, 9])
    assert all(stats.units == 9 for _, stats, _, _ in seen)


@pytest.mark.parametrize(
    "words",
    [
        ("algo=fedavg", "mechanism=none"),  # pooled: the silo trains as one
        ("algo.user_rate=0.5",),  # some silos have nobody
        ("preset.local_epochs=3", "algo.batch_size=3"),  # orders of batches
        ("model.hidden=[20,20]", "model.dropout=0.3"),
        ("mechanism=discrete_gaussian",),
        ("algo.clip=1e-3", "algo.noise_multiplier=0"),
        ("algo.weighting=records",),
        ("randomness=system", "algo.noise_multiplier=0"),
    ],
)
def test_the_bits_are_the_same_whatever_is_trained(words, monkeypatch):
    assert_same(devices(7, *words), monkeypatch)


def test_silos_with_several_users_make_their_own_messages(monkeypatch):
    exp = experiment("algo=uldp_avg", "data=artificial", "preset.n_silos=3", "preset.n_users=9")
    assert_same(exp, monkeypatch, batches=[])


def test_silos_that_repeat_earlier_sums_make_their_own_messages(monkeypatch):
    words = ("mechanism=correlated", "mechanism.bands=2", "algo.cycle=2", "rounds=4")
    assert_same(devices(4, *words), monkeypatch, batches=[])


def test_parts_of_a_matrix_have_the_same_bits(monkeypatch):
    with prepare(devices(2)) as run:
        size = run.plan.federation.n_parameters
    monkeypatch.setattr("fedpriv.aggregation.weighted.PART_BYTES", 3 * 8 * size)
    assert_same(devices(8), monkeypatch, batches=[8, 8])


def make_nan(run):
    run.silo_data[2].x[:] = np.nan


def test_a_user_whose_training_diverges_contributes_nothing(monkeypatch):
    seen = assert_same(devices(6), monkeypatch, spoil=make_nan, batches=[6, 6])
    assert [stats.nonfinite for _, stats, _, _ in seen] == [1, 1]
    assert [stats.units for _, stats, _, _ in seen] == [6, 6]


@pytest.mark.parametrize("aggregation", ["plain", "masked"])
@pytest.mark.parametrize("step", [0, 1])
def test_who_drops_out_is_named_as_before(aggregation, step, monkeypatch):
    """Step 0 is the broadcast, step 1 the answer."""
    where = {"sender": "silo4"} if step else {"receiver": "silo4"}
    fault = drop(exchange=1, step=step, **where)
    exp = replace(devices(6, f"aggregation={aggregation}"), engine=Faulty(InProcess(), (fault,)))
    seen = assert_same(exp, monkeypatch)
    assert [aborted for *_, aborted in seen] == ["no message from silo4", None]


def test_a_vector_out_of_range_names_the_first_silo_in_the_order_of_names():
    exp = devices(12, "algo=fedavg", "mechanism=none", "aggregation=masked")
    exp = replace(exp, aggregation=Masked(range=1e-9))
    [(_, _, _, aborted)] = rounds(exp, 1)
    assert "a coordinate of silo0's vector lies outside" in aborted


class RoundedSilo(PlainSilo):
    def noised_sum(self, query, job):
        return np.round(super().noised_sum(query, job), 1)


class SignSilo(PlainSilo):
    def weighted_sum(self, job):
        return np.sign(super().weighted_sum(job))


@pytest.mark.parametrize("own", [RoundedSilo, SignSilo])
def test_an_authors_own_sum_is_the_message(own, monkeypatch):
    exp = devices(5, "algo.noise_multiplier=0")
    monkeypatch.setattr(Plain, "silo", lambda self, *given: own(*given))
    seen = assert_same(exp, monkeypatch, number=1, batches=[])
    monkeypatch.undo()
    assert seen != rounds(exp, 1)
