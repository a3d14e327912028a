"""Averages by ADMM: the paper's lemmas about convergence, agreement with the mean, messages and
their bytes."""

from dataclasses import replace

import numpy as np
import pytest
from parties_of_generators import run
from peer_averages import SIZE, Peers, admm, vectors

from fedpriv.aggregation.admm.aggregation import Admm
from fedpriv.aggregation.admm.peer import Averaging
from fedpriv.aggregation.admm.penalty import PRESETS, Penalty
from fedpriv.engines.inprocess import InProcess
from fedpriv.errors import AggregationAbortedError, ConfigError
from fedpriv.mechanisms.gaussian import Gaussian
from fedpriv.mechanisms.none import NoMechanism
from fedpriv.parties.messages import size_of
from fedpriv.rounds.contributors import HomeWeighting
from fedpriv.rounds.plan import Federation
from fedpriv.testing.faults import Faulty, alter, drop


def z_of(w, duals, penalty, iterations):
    """The recursion of Algorithm 1 for all peers in one array, in the type of its numbers; yields z
    and the duals after each iteration."""
    peers = [Averaging(own, dual) for own, dual in zip(w, duals)]
    for iteration in range(1, iterations + 1):
        rho = w.dtype.type(penalty.at(iteration))
        z = np.mean([peer.message(rho) for peer in peers], axis=0)
        for peer in peers:
            peer.take(z, rho)
        yield z, np.array([peer.dual for peer in peers])


@pytest.mark.parametrize(
    ("dual", "expected"), [(0.0, [1 / 3, 4 / 9, 13 / 27, 40 / 81]), (0.5, [2 / 3, 5 / 9, 14 / 27])]
)
def test_golden_row_37(dual, expected):
    """w_k = k / 10 for k = 1..9, rho = 1: mean 1/2."""
    w = np.arange(1, 10)[:, None] / 10
    found = [float(z[0]) for z, _ in z_of(w, np.full_like(w, dual), Penalty(1.0), len(expected))]
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize(
    "penalty", [Penalty(1.0), Penalty(3.0, 0.5, 1), Penalty(0.1, 0.9, 4)], ids=str
)
def test_lemmas_ii_1_and_ii_2_hold_from_the_second_iteration_on(penalty):
    """Lemma II.2's rate rests on a sum of zero, which the first iteration does not start with: its
    error also holds the mean of lambda^0, 2 mean / (rho (2 + rho)), and is no rho / (2 + rho) of
    the one before."""
    w, duals = vectors(9), np.random.default_rng(1).random((9, SIZE))
    steps = list(z_of(w, duals, penalty, 8))
    for _, after in steps:
        np.testing.assert_allclose(after.sum(0), 0, atol=1e-12)
    errors = [z - w.mean(0) for z, _ in steps]
    for iteration in range(2, 9):
        rho = penalty.at(iteration)
        np.testing.assert_allclose(
            errors[iteration - 1], rho / (rho + 2) * errors[iteration - 2], atol=1e-13
        )
    rho = penalty.at(1)
    first = 2 * w.mean(0) / (2 + rho) + 2 * duals.mean(0) / (rho * (2 + rho))
    np.testing.assert_allclose(steps[0][0], first, rtol=1e-12)
    claimed = rho / (rho + 2) * np.abs(w.mean(0))  # Lemma II.2 for i = 1, with z^0 = 0
    assert np.all(np.abs(errors[0]) > claimed)


def test_below_1e_13_after_four_iterations_in_double_precision_only():
    """The paper's error curve shows mean squared errors: 1e-18 in float64, 1e-11 in float32."""
    iterations, penalty = PRESETS["tuned_4"]
    for dtype, low, high in ((np.float64, 1e-20, 1e-13), (np.float32, 1e-13, 1e-9)):
        w = vectors(9, size=500).astype(dtype)
        duals = np.random.default_rng(1).random((9, 500)).astype(dtype)
        *_, (z, _) = z_of(w, duals, penalty, iterations)
        assert low < np.mean((z - w.mean(0)) ** 2) < high
    moderate = [np.mean((z - w.mean(0)) ** 2) for z, _ in z_of(w, duals, Penalty(1.0), 4)]
    assert moderate[-1] == pytest.approx(1.6e-4, rel=0.6)


@pytest.mark.parametrize(
    ("n", "settings"),
    [
        (9, {}),
        (16, {"group_size": 4}),
        (5, {}),
        (9, {"topology": "all"}),
        (15, {"groups": "printed"}),
        (9, {"tolerance": 1e-14}),
    ],
    ids=str,
)
def test_every_peer_ends_with_the_mean(n, settings):
    w = vectors(n)
    found, _ = Peers(admm(**settings), n).average(w)
    np.testing.assert_allclose(found, w.mean(0), rtol=1e-12, atol=1e-14)


def test_a_tolerance_ends_early():
    few, many = (
        len(Peers(admm(**own), 9).average(vectors(9))[1].transcript)
        for own in ({"tolerance": 1e-3}, {})
    )
    assert few < many / 3


def test_weighted_by_records():
    w, records = vectors(9), (1, 2, 3, 4, 5, 6, 7, 8, 0)
    found, _ = Peers(admm(average="records"), 9, records).average(w)
    np.testing.assert_allclose(
        found, np.average(w, axis=0, weights=records), rtol=1e-12, atol=1e-14
    )


def test_masks_leave_the_average():
    w = vectors(9)
    found, traffic = Peers(admm(masking=True), 9).average(w)
    np.testing.assert_allclose(found, w.mean(0), atol=1e-8)
    shares = [
        letter.message.content
        for letter in traffic.transcript
        if letter.message.phase.startswith("share")
    ]
    high = np.concatenate(shares) >> np.uint64(63)
    assert high.mean() == pytest.approx(0.5, abs=0.03)


@pytest.mark.parametrize(("n", "size"), [(9, 3), (16, 4)])
def test_bytes_are_those_of_the_messages_that_the_paper_counts(n, size):
    """A vector y to each other member, a partial sum from each group to each other one, and all of
    them passed on."""
    iterations, d = 2, 50
    found = Peers(admm(iterations=iterations, group_size=size), n)
    _, traffic = found.average(vectors(n, size=d))
    first = {letter.message.phase: letter.message for letter in traffic.transcript}
    groups, vector = n // size, 8 * d
    payload = {
        "y": (n * (size - 1), vector),
        "sum": (groups * (groups - 1), vector),
        "relay": (groups * (size - 1), (groups - 1) * vector),
        "check": (groups * (size - 1) ** 2, 32),
        "done": (n * (n - 1), 32),
    }
    for kind, (count, content) in payload.items():
        phases = [phase for phase in first if phase.split()[0] == kind]
        assert len(phases) == (1 if kind == "done" else iterations)
        for phase in phases:
            sizes = [
                size_of(letter.message)
                for letter in traffic.transcript
                if letter.message.phase == phase
            ]
            assert len(sizes) == count
            assert set(sizes) == {content + size_of(first[phase]) - _content(first[phase].content)}
    rows = traffic.rows(1, "update")
    assert sum(row["bytes"] for row in rows) == sum(
        size_of(letter.message) for letter in traffic.transcript
    )
    leaders = {letter.sender for letter in traffic.transcript if letter.message.phase == "sum 1"}
    speakers = {
        "y 1": (size - 1, set(found.names)),
        "sum 1": (groups - 1, leaders),
        "relay 1": (size - 1, leaders),
        "check 1": (size - 1, set(found.names) - leaders),
    }
    for step, (kind, (receivers, speaking)) in enumerate(speakers.items()):
        for name in found.names:
            sent = [row["bytes"] for row in rows if (row["step"], row["party"]) == (step, name)]
            assert sent == [receivers * size_of(first[kind])] * (name in speaking)


def _content(content):
    if isinstance(content, list):
        return sum(part.nbytes for part in content)
    return content.nbytes if isinstance(content, np.ndarray) else len(content)


PHASES = ["y 1", "sum 1", "relay 1", "check 1", "y 2", "done"]


@pytest.mark.parametrize("phase", PHASES)
@pytest.mark.parametrize("fault", ["drop", "alter"])
def test_missing_and_altered_messages_end_the_aggregation(phase, fault):
    """Altered on the way, as nobody with the signing key would send it."""
    peers = Peers(admm(iterations=2), 9)
    w, steps = vectors(9), {"y 1": 0, "sum 1": 1, "relay 1": 2, "check 1": 3, "y 2": 4, "done": 8}
    _, traffic = peers.average(w)
    sender, receiver = next(
        (letter.sender, letter.receiver)
        for letter in traffic.transcript
        if letter.message.phase == phase
    )
    where = {"step": steps[phase], "sender": sender, "receiver": receiver}

    def change(message):
        content = message.content
        if isinstance(content, bytes):
            return replace(message, content=bytes(32))
        if isinstance(content, list):
            return replace(message, content=[content[0] + 1e-9, *content[1:]])
        return replace(message, content=content + 1e-9)

    peers.letters.clear()
    engine = Faulty(InProcess(), (drop(**where) if fault == "drop" else alter(change, **where),))
    with pytest.raises(AggregationAbortedError, match=sender if fault == "alter" else None):
        peers.average(w, (2, 0), engine)
    assert (
        max(letter.step for letter in peers.letters) <= steps[phase] + 1
    )  # nothing further is released


@pytest.mark.parametrize("phase", ["check 1", "done"])
def test_peers_that_come_to_different_averages_say_so(phase):
    peers = Peers(admm(iterations=2), 9)
    _, traffic = peers.average(vectors(9))
    sender = next(letter.sender for letter in traffic.transcript if letter.message.phase == phase)
    parties = peers.parties(vectors(9), (2, 0))
    peers.protocols.says(parties, sender, phase, lambda sent: dict.fromkeys(sent, bytes(32)))
    with pytest.raises(
        AggregationAbortedError,
        match=rf"^{sender} and silo\d have different averages; any of silo0, .*silo8 may have sent",
    ):
        run(parties)


def test_what_an_aborted_aggregation_was_about_is_never_sent_again():
    peers = Peers(admm(iterations=2), 9)
    w = vectors(9)
    with pytest.raises(AggregationAbortedError, match="silo1"):
        peers.average(w, (1, 0), Faulty(InProcess(), (drop(step=4, sender="silo1"),)))
    run(peers.protocols.setup(np.eye(9, dtype=np.int64)))
    before = len(peers.letters)
    with pytest.raises(AggregationAbortedError, match="aborted aggregation"):
        peers.average(w, (2, 0))
    assert len(peers.letters) == before
    peers.average(w + 1e-3, (3, 0))


@pytest.mark.parametrize(
    ("settings", "n", "why"),
    [
        ({"preset": None, "iterations": 5}, 9, "; 4 are safe .the paper says 7"),
        ({"preset": None, "iterations": 6}, 15, "; 5 are safe .the paper says 13"),
        ({"topology": "all"}, 9, "; 1 are safe"),
        ({"preset": None, "iterations": 2, "colluders": 3}, 9, "; 1 are safe .the paper says 7"),
        ({"preset": "tuned_4"}, 9, "smallest_width=0.1: at most"),
        ({"preset": None, "iterations": 2, "masking": True, "colluders": 2}, 9, "; 1 are safe"),
        ({}, 2, "3 or more silos"),
    ],
    ids=str,
)
def test_settings_that_give_models_away_are_refused(settings, n, why):
    with pytest.raises(ConfigError, match=why):
        Admm(**settings).cohort_size(n)
    if n > 2:
        assert Admm(**settings, beyond_safe=True).cohort_size(n) == (n, None)


def test_fewer_peers_go_on_where_that_is_safe():
    safe, unsafe = (Admm(preset=None, iterations=few, least_peers=9) for few in (4, 5))
    assert [safe.continues_with(n) for n in (8, 9)] == [False, True]
    assert not unsafe.continues_with(9)
    assert not Admm(preset=None, iterations=4).continues_with(9)


def test_users_at_home_count_in_full_in_averages_by_records():
    records, w = (1, 2, 3), vectors(3)
    peers = Peers(admm(average="records"), 3, records, weighting=HomeWeighting())
    found, _ = peers.average(w)
    np.testing.assert_allclose(found, np.average(w, axis=0, weights=records), atol=1e-9)


def test_weights_by_records_would_undo_a_bound():
    federation = Federation(n_users=9, n_silos=9, n_parameters=4)
    admm(average="records").encoding(9, 1.0, federation, NoMechanism())
    with pytest.raises(ConfigError, match=r"^aggregation\.average=records: equal where"):
        admm(average="records").encoding(
            9, 1.0, federation, Gaussian(clip=1.0, noise_multiplier=1.0)
        )
    with pytest.raises(ConfigError, match="needs every silo"):
        admm().encoding(8, 1.0, federation, NoMechanism())


@pytest.mark.parametrize(
    ("rho", "ratio"), [(0.5, 0.04), (1, 1 / 9), (2, 0.25), (3, 0.36), (10, 0.694444)]
)
def test_golden_row_38(rho, ratio):
    w, duals = vectors(9), np.random.default_rng(1).random((9, SIZE))
    errors = [np.mean((z - w.mean(0)) ** 2) for z, _ in z_of(w, duals, Penalty(rho), 5)]
    np.testing.assert_allclose(np.divide(errors[1:], errors[:-1]), ratio, atol=1e-6)
