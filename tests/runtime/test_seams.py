"""What no shipped method uses yet: several queries a round, one model a silo, aggregation without a
server."""

from dataclasses import replace

import numpy as np
import pytest
from seam_methods import ANCHOR, DIFFERENCE, Anchored, Everyone, FromNowhere, Personal

from fedpriv.accountants.ledger import Ledger
from fedpriv.rounds.query import events_of
from fedpriv.runtime import prepare
from fedpriv.testing import check_algorithm, experiment
from fedpriv.testing.experiments import SMALL
from fedpriv.testing.noise_checks import total

FEDAVG = {"local_epochs": 2, "batch_size": 1000, "local_lr": 0.1, "global_lr": 1.0}


def world(algo, *words):
    return experiment(*SMALL, *words, algo=algo)


def rounds(exp, number):
    with prepare(exp) as prepared:
        results = []
        for r in range(1, number + 1):
            results.append(prepared.run_round(prepared.queries(r), prepared.state))
            prepared.state = results[-1].state
        return results, prepared


@pytest.mark.parametrize("aggregation", ["plain", "masked", "secagg"])
def test_two_queries_a_round_have_mechanisms_messages_and_noise_of_their_own(aggregation):
    exp = world(Anchored(), f"aggregation={aggregation}")
    (first, _), prepared = rounds(exp, 2)
    lines = {(line["query"], line["party"]) for line in first.traffic}
    assert {query for query, _ in lines} == {ANCHOR, DIFFERENCE}
    assert (ANCHOR, "server") in lines
    assert first.stats.units == 2 * 3  # three silos, two queries
    anchor, difference = prepared.queries(1)
    assert (anchor.mechanism.clip, difference.mechanism.clip) == (0.5, 0.1)
    assert anchor.serial < difference.serial < prepared.queries(2)[0].serial
    noise = {
        name: total(exp, name, noisy=True) - total(exp, name, noisy=False) for name in (ANCHOR,)
    }
    assert np.std(noise[ANCHOR]) == pytest.approx(0.5 * 3 * 2 * 3, rel=0.3)
    assert abs(np.corrcoef(first.state.slots[ANCHOR], first.state.params)[0, 1]) < 0.999


def test_the_noise_of_two_queries_is_independent():
    """Equal mechanisms, no records that matter: the two sums' noises must not be the same draw."""
    exp = world(Anchored(smaller=0.5, noise_multiplier=50.0))
    with prepare(exp) as prepared:
        anchor, difference = prepared.queries(1)
        assert anchor.stream("noise") != difference.stream("noise")
        result = prepared.run_round((anchor, difference), prepared.state)
    first, second = result.state.slots[ANCHOR], result.state.params - result.state.slots[ANCHOR]
    assert abs(np.corrcoef(first, second)[0, 1]) < 0.6


def test_both_queries_are_charged():
    exp = world(Anchored())
    with prepare(exp) as prepared:
        queries = prepared.queries(1)
    ledger, half = Ledger(exp.accountant), Ledger(exp.accountant)
    ledger.record(events_of(queries))
    half.record(queries[0].events)
    assert min(row.certified for row in ledger.rows(1)) > min(row.certified for row in half.rows(1))


def test_two_queries_pass_the_kit_and_survive_a_resume():
    checked = check_algorithm(Anchored())
    assert {"queries", "rounds"} <= set(checked.checked)


def test_one_model_a_silo_is_evaluated():
    exp = world(Personal(**FEDAVG), "allocator.local_test_from=20")
    with prepare(exp) as prepared:
        row, params = prepared.evaluate(prepared.state), prepared.state.params
        models = [params, 0.5 * params, 0 * params]
        alone = [prepared.evaluation.row(model) for model in models]
        assert row["loss"] == pytest.approx(np.mean([other["loss"] for other in alone]))
        assert row["accuracy"] == pytest.approx(np.mean([other["accuracy"] for other in alone]))
        held = prepared.evaluation.held_out
        assert held is not None
        sizes = np.bincount(held.silo, minlength=3)
        own = []
        for silo, model in enumerate(models):
            x, y = held.x[held.silo == silo], held.y[held.silo == silo]
            scores = x @ model[:60].reshape(2, 30).T + model[60:]
            own.append((scores.argmax(1) == y).mean())
        assert row["local_accuracy"] == pytest.approx(np.average(own, weights=sizes))


def test_without_a_server_every_silo_learns_the_sum():
    algo = FromNowhere(**FEDAVG)
    exp = replace(world(algo), aggregation=Everyone())
    [result], prepared = rounds(exp, 1)
    assert result.aborted is None
    assert {line["party"] for line in result.traffic} == {"silo0", "silo1", "silo2"}
    [reference], _ = rounds(world(algo), 1)
    np.testing.assert_allclose(result.state.params, reference.state.params, rtol=1e-12)
    [query] = prepared.queries(1)
    assert {event.observer for event in query.events} == {"released model", "silo"}
    assert all("peers follow the protocol" in event.assumptions for event in query.events)


def test_peers_who_disagree_end_the_run():
    exp = replace(world(FromNowhere(**FEDAVG)), aggregation=Everyone(wrong="silo1"))
    with prepare(exp) as prepared, pytest.raises(RuntimeError, match="different totals"):
        prepared.run_round(prepared.queries(1), prepared.state)
