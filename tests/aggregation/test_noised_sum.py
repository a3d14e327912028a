"""Messages made as rows of one matrix, held against those of one silo after the other."""

from contextlib import contextmanager
from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from fedpriv.aggregation.masked import Masked
from fedpriv.aggregation.noised_sum import NoisedSum
from fedpriv.aggregation.plain import Plain, PlainSilo
from fedpriv.encoding.fixed_point import FixedPoint, OutOfRangeError
from fedpriv.engines.inprocess import InProcess
from fedpriv.mechanisms.gaussian import Gaussian
from fedpriv.rounds import one_row
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
        ("algo=fedprox", "mechanism=none"),
        ("algo.user_rate=0.5",),  # some silos have nobody
        ("preset.local_epochs=3", "algo.batch_size=3"),  # orders of batches
        ("model.hidden=[20,20]", "model.dropout=0.3"),
        ("mechanism=discrete_gaussian",),
        ("algo.clip=1e-3",),
        ("algo.noise_multiplier=0",),
        ("algo.weighting=records",),
        ("randomness=system", "algo.noise_multiplier=0"),
    ],
)
def test_the_bits_are_the_same_whatever_is_trained(words, monkeypatch):
    assert_same(devices(7, *words), monkeypatch)


def test_silos_with_several_users_make_their_own_messages(monkeypatch):
    exp = experiment("algo=uldp_avg", "data=artificial", "preset.n_silos=3", "preset.n_users=9")
    assert_same(exp, monkeypatch, batches=[])


def test_parts_of_a_matrix_have_the_same_bits(monkeypatch):
    with prepare(devices(2)) as run:
        size = run.plan.federation.n_parameters
    monkeypatch.setattr("fedpriv.aggregation.noised_sum.PART_BYTES", 3 * 8 * size)
    assert_same(devices(8), monkeypatch, batches=[8, 8])


def test_a_matrix_that_fails_counts_each_contribution_once(monkeypatch):
    """Every silo then makes its own message, and counts again."""

    def late(works, query):
        noised(works, query)
        raise RuntimeError("after counting")

    from fedpriv.aggregation import noised_sum

    noised = noised_sum._noised
    monkeypatch.setattr(noised_sum, "_noised", late)
    seen = assert_same(devices(5), monkeypatch)
    assert all(stats.units == 5 for _, stats, _, _ in seen)


def test_a_noise_share_that_is_given_to_a_job_stays(monkeypatch):
    given = []

    def batch(works):
        for work in works:
            noise = np.full(work.query.size, 7.0)
            job = replace(work.job, noise=noise)
            given.append(np.array_equal(job.noise, noise) and job.one_row is None)
        return [work.run() for work in works]

    monkeypatch.setattr(NoisedSum, "run_batch", staticmethod(batch))
    rounds(devices(3), 1)
    assert given == [True] * 3


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


def test_drop_outs_of_a_secure_sum_leave_the_same_status(monkeypatch):
    words = "aggregation=secagg", "aggregation.threshold=5", "aggregation.cohort=6"
    exp = devices(8, *words)
    exp = replace(exp, engine=Faulty(InProcess(), (drop(exchange=1, step=0, receiver="silo3"),)))
    seen = assert_same(exp, monkeypatch)
    assert [aborted for *_, aborted in seen] == [None, None]


def test_a_vector_out_of_range_names_the_first_silo_in_the_order_of_names(monkeypatch):
    exp = devices(12, "aggregation=masked")
    own = one_row.bounded_matrix

    def far(rows):
        places, vectors = own(rows)
        vectors[:] = 1e9
        return places, vectors

    def one_by_one(self, query, job):
        raise OutOfRangeError(self.name)

    monkeypatch.setattr("fedpriv.aggregation.noised_sum.bounded_matrix", far)
    monkeypatch.setattr("fedpriv.aggregation.weighted.WeightedSilo.noised_sum", one_by_one)
    [(_, _, _, aborted)] = rounds(exp, 1)
    assert aborted == "silo0"


def halve(module, args, output):
    return output / 2


def test_a_hook_that_comes_between_rounds_is_seen(monkeypatch):
    with prepare(devices(5)) as run, counted(monkeypatch) as sizes:
        before = run.run_round(run.queries(1), run.state).state
        assert sizes == [5]
        hook = run.model.register_forward_hook(halve)
        run.run_round(run.queries(2), before)
        hook.remove()
    assert sizes == [5]  # the compiled trainer does not know hooks


def test_a_hook_that_comes_between_a_job_and_its_sum_is_seen(monkeypatch):
    own = one_row.one_row

    def hooked(run):
        def found(job, silo, query, **more):
            row = own(job, silo, query, **more)
            if silo.index == 3:  # after the training of three silos is prepared
                run.model.register_forward_hook(halve)
            return row

        monkeypatch.setattr("fedpriv.runtime.silo.one_row", found)

    hooked_then = assert_same(devices(5), monkeypatch, 1, hooked, batches=[5])
    monkeypatch.undo()
    assert hooked_then != rounds(devices(5), 1)


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


@dataclass(frozen=True)
class TowardsZero(FixedPoint):
    """Encodes one silo's vector at a time."""

    def encode(self, signal, owner, noise=None):
        assert signal.ndim == 1
        return super().encode(np.trunc(signal * 8) / 8, owner, noise)


def test_an_authors_own_encoding_gets_one_vector(monkeypatch):
    own = Masked.encoding

    def encoding(self, *given, **named):
        found = own(self, *given, **named)
        return TowardsZero(found.bits, found.bound, found.parties)

    monkeypatch.setattr(Masked, "encoding", encoding)
    assert_same(devices(5, "aggregation=masked"), monkeypatch, number=1, batches=[])


@dataclass(frozen=True)
class BlockGaussian(Gaussian):
    """Scales all rows of a block alike."""

    def bound(self, vectors):
        norms = vectors.double().norm(dim=1)
        return vectors.double() * min(1.0, self.clip / float(norms.max())), norms


def test_an_authors_own_bound_gets_one_silos_rows(monkeypatch):
    exp = replace(devices(5), mechanism=BlockGaussian(0.01, 0.1))
    assert_same(exp, monkeypatch, number=1, batches=[])


@settings(
    max_examples=12,
    deadline=None,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
)
@given(
    silos=st.integers(2, 12),
    seed=st.integers(0, 10**6),
    epochs=st.integers(1, 3),
    batch=st.sampled_from(["1", "4", "64"]),
    clip=st.sampled_from(["0.001", "0.1", "10"]),
    rate=st.sampled_from(["1", "0.4"]),
    aggregation=st.sampled_from(["plain", "masked", "secagg"]),
    threads=st.sampled_from([1, 2]),
)
def test_any_run_has_the_bits_of_one_silo_after_the_other(
    silos, seed, epochs, batch, clip, rate, aggregation, threads
):
    if aggregation == "secagg" and silos < 4:
        silos = 4
    exp = devices(
        silos,
        f"seed={seed}",
        f"preset.local_epochs={epochs}",
        f"algo.batch_size={batch}",
        f"algo.clip={clip}",
        f"algo.user_rate={rate}",
        f"aggregation={aggregation}",
    )
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        with pytest.MonkeyPatch.context() as monkeypatch:
            assert_same(exp, monkeypatch, number=1)
    finally:
        torch.set_num_threads(before)
