"""Lines of plain, masked, secure and shuffled sums, and of private weighting."""

import numpy as np
import pytest
from cheating_server import Attack, aggregation_of
from parties_of_generators import Protocols, changed, run
from queries import query_for
from secure_sums import PHASES, parties, ready, total_of
from server_evaluator import Setting, Witnesses
from strategies_of_servers import random_view, split
from test_masked_servers import check as check_masked_server
from test_secagg_knowledge import attack as attack_by_a_random_server
from test_shuffle import MESSAGE as SAID
from test_shuffle import SHUFFLER, cheating

from fedpriv.aggregation.base import MESSAGE, SERVER
from fedpriv.aggregation.masked import Masked, mask
from fedpriv.aggregation.plain import Plain
from fedpriv.aggregation.secagg.aggregation import SecAgg
from fedpriv.aggregation.weighted import WEIGHTS
from fedpriv.crypto.paillier.keys import generate_key
from fedpriv.crypto.paillier.modulus_proof import check_modulus, prove_modulus
from fedpriv.errors import AggregationAbortedError, ConfigError
from fedpriv.rounds.contributors import RecordWeighting
from fedpriv.rounds.local_job import LocalJob

pytestmark = pytest.mark.slow


def sum_with(aggregation, change):
    """A sum of three silos, of which silo1 changes its message."""
    protocols = Protocols(aggregation, (0, 1, 2))
    run(protocols.setup(np.ones((3, 1), dtype=np.int64)))
    query = query_for(aggregation, 3, size=2)
    jobs = {name: LocalJob(iter(()), np.ones(2)) for name in protocols.names}
    cast = protocols.query(query, jobs)
    protocols.says(cast, "silo1", MESSAGE, lambda sent: {SERVER: change(sent[SERVER])})
    return run(cast)[SERVER].vector


@pytest.mark.parametrize(
    "message",
    [
        np.array([0x7FF8000000000001, 0], dtype=np.uint64).view(np.float64),  # NaN with a payload
        np.array([-np.inf, 0]),
        np.ones(2, np.float32),
        np.ones((2, 1)),
        np.ones(3),
        np.array([1, 2]),
        [1.0, 2.0],
        None,
    ],
)
def test_what_is_no_vector_of_numbers_ends_a_plain_sum_with_the_silos_name(message):
    with pytest.raises(AggregationAbortedError, match="silo1"):
        sum_with(Plain(), lambda _: message)


@pytest.mark.parametrize("lie", [np.nextafter(1, 2), -5e-324, np.nan, np.inf, -1.0])
def test_a_weight_outside_0_to_1_is_refused(lie, refused):
    protocols = Protocols(Plain(), (0, 1, 2), RecordWeighting())
    cast = protocols.setup(np.array([[1, 2], [3, 1], [5, 6]]))

    def lying(sent):
        wrong = sent["silo0"].copy()
        wrong[0] = lie
        return sent | {"silo0": wrong}

    signer = lambda: protocols[SERVER].signer  # noqa: E731
    cast[SERVER] = changed(cast[SERVER], WEIGHTS, lying, name=SERVER, signer=signer)
    refused(lambda: run(cast), AggregationAbortedError)


def test_drawn_servers_learn_the_masked_sum_of_honest_silos_alone(chance):
    for _ in range(100):
        check_masked_server(chance.randrange(10**6, 10**9))


def test_masks_of_drawn_serials_models_and_cohorts_differ(chance):
    seeds = {f"silo{i}": chance.randbytes(32) for i in range(6)}
    masks = {}
    for _ in range(2000):
        cohort = tuple(sorted({"silo0", *chance.sample([*seeds], chance.randint(1, 5))}))
        serial = chance.randint(1, 99), chance.randint(0, 9)
        about = serial, chance.choice([b"", b"m", b"n"]), cohort
        if len(cohort) > 1:
            zeros = np.zeros(4, np.uint64)
            made = mask(zeros, "silo0", cohort, seeds=seeds, serial=serial, told=about[1])
            masks[about] = made.tobytes()
    assert len(set(masks.values())) == len(masks)


def test_bytes_of_masked_zeros_are_uniform(chance):
    seeds = {f"silo{i}": chance.randbytes(32) for i in range(3)}
    made = mask(np.zeros(40_000, np.uint64), "silo0", seeds, seeds=seeds, serial=(1, 0))
    for column in made.view(np.uint8).reshape(-1, 8).T:
        chi_square = ((np.bincount(column, minlength=256) - 156.25) ** 2 / 156.25).sum()
        assert chi_square < 370  # 255 expected, standard deviation 22.6


def test_a_message_beyond_the_range_ends_a_masked_sum_without_a_name():
    with pytest.raises(AggregationAbortedError) as abort:
        sum_with(Masked(), lambda sent: sent + np.array(2**62, sent.dtype))
    assert "silo1" not in str(abort.value)


def with_a_negative_count(sent):
    wrong = sent.copy()
    wrong.flat[-1] = -1
    return wrong


@pytest.mark.parametrize(
    "lie",
    [
        lambda sent: np.full_like(sent, -(2**63)),
        lambda sent: np.full_like(sent, 2**63 - 1),
        with_a_negative_count,
        lambda sent: sent.astype(np.float64),
        lambda sent: sent[:-1],
    ],
)
def test_counts_that_no_silo_can_have_are_refused(lie, refused):
    change = lambda sent: {SHUFFLER: lie(sent[SHUFFLER])}  # noqa: E731
    refused(lambda: cheating("silo2", SAID, change), AggregationAbortedError)


def test_proofs_of_another_modulus_context_or_bit_are_refused(chance):
    one, other = generate_key(512), generate_key(512)
    proof = prove_modulus(one, b"here")
    check_modulus(one.public, proof, b"here", prime_to=1)
    bent = bytearray(proof)
    bent[chance.randrange(len(bent))] ^= 1
    wrong = [(one, proof, b"there"), (other, proof, b"here"), (one, bytes(bent), b"here")]
    wrong += [(one, bytes(len(proof)), b"here"), (one, b"", b"here")]
    for key, said, context in wrong:
        with pytest.raises(Exception):  # noqa: B017, PT011
            check_modulus(key.public, said, context, prime_to=1)


# -- secure aggregation ----------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["secagg", "secagg_exact_noise", "ring"])
def test_a_drawn_server_learns_one_sum_at_most(name, chance):
    for _ in range(60):
        attack_by_a_random_server(chance.randrange(10**6, 10**9), name)


def drawn_setting(chance, most, *, safe, exact=False):
    while True:
        silos = chance.randint(2, most)
        candidates = chance.choice([silos, chance.randint(2, silos)])
        cohort = chance.randint(1, candidates)
        threshold = chance.randint(1, cohort)
        made = Setting(
            silos=silos,
            candidates=candidates,
            cohort=cohort,
            threshold=threshold,
            colluding=chance.randint(0, threshold - 1),
            most=candidates if exact else None,
        )
        if made.safe == safe:
            return made


@pytest.mark.parametrize("exact", [False, True])
def test_no_drawn_view_of_a_safe_setting_leaks(exact, chance):
    for _ in range(4000):
        setting = drawn_setting(chance, 9, safe=True, exact=exact)
        assert not random_view(chance, setting, Witnesses.RECEIPTS).leaks


def test_drawn_unsafe_settings_are_refused(chance, refused):
    for _ in range(500):
        setting = drawn_setting(chance, 300, safe=False)
        refused(
            lambda setting=setting: aggregation_of(setting).cohort_size(setting.silos), ConfigError
        )


def test_a_split_of_the_survivors_reads_no_single_message(chance):
    tried = 0
    while tried < 20:
        setting = drawn_setting(chance, 7, safe=True)
        if setting.silos < 3 or setting.candidates < setting.silos:
            continue
        try:
            view = split(setting)
        except (AssertionError, IndexError, ValueError, StopIteration):
            continue  # too small to be split
        for row in Attack(view, aggregation_of(setting)).learned():
            assert sum(map(bool, row.values())) > 1 or setting.cohort - setting.colluding < 2
        tried += 1


@pytest.mark.parametrize("phase", PHASES)
def test_a_silo_that_speaks_in_anothers_name_is_found(phase, refused):
    protocols = ready(SecAgg(threshold=3, cohort=3), 4)
    cast = parties(protocols, np.ones((4, 2)))
    signer = protocols["silo2"].signer
    cast["silo1"] = changed(cast["silo1"], phase, lambda sent: sent, name="silo1", signer=signer)
    refused(lambda: total_of(cast), AggregationAbortedError)
