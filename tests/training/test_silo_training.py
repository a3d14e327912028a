"""Users of several silos in one stack."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from one_by_one import BATCHED, PLAIN, STREAMS, cnn, mlp, silo

from fedpriv.models.tasks import Classification
from fedpriv.training import users
from fedpriv.training.description import Execution, Recipe, Training
from fedpriv.training.optimizers import Adam, Sgd
from fedpriv.training.silo_training import SiloTraining
from fedpriv.training.trainers.compiled.library import library
from fedpriv.training.vectors import flatten

COUNTS = [1, 1, 2], [9, 3, 3, 1], [5], [14, 14, 2, 1, 1, 1]
NETWORKS = {"mlp": (mlp, (6,)), "cnn": (cnn, (1, 12, 12))}


def network(name="mlp", p=0.0):
    torch.manual_seed(0)
    build, shape = NETWORKS[name]
    return build(p=p), shape


def works(model, shape, recipe, *, execution=BATCHED, counts=COUNTS, **training):
    """The training of a silo each."""
    described = Training(recipe, flatten(model).double().numpy(), **training)
    place = {"streams": STREAMS, "round": 3, "execution": execution}
    return [
        users.silo_training(
            described,
            model=model,
            data=silo(own, shape, Classification(), i),
            task=Classification(),
            party=f"silo{i}",
            **place,
        )
        for i, own in enumerate(counts)
    ]


def by_user(blocks, work):
    """The deltas (k, d) of a silo's users in the order of its data."""
    deltas = torch.full((len(work.users.data.users), len(work.problem.start)), torch.nan)
    for block in blocks:
        places = np.searchsorted(work.users.data.users, block.units)
        deltas[torch.from_numpy(places)] = block.vectors
    return deltas


def apart(works):
    return [by_user(work.run(), work) for work in works]


def run_batch(works):
    assert len({work.batch_key for work in works}) == 1
    assert works[0].batch_key is not None
    return [by_user(own, work) for own, work in zip(SiloTraining.run_batch(works), works)]


def assert_close(got, want):
    for one, other in zip(got, want, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=2e-6)


@pytest.mark.parametrize("size", [None, 3, 4, 50])
@pytest.mark.parametrize("name", NETWORKS)
def test_a_silo_gets_what_it_gets_alone(name, size):
    """In batches of which some silos' users need several; in whatever order silos come."""
    given = works(*network(name), Recipe(3, size, 0.1, proximal=0.1))
    want = apart(given)
    assert all(bool((own.norm(dim=1) > 1e-3).all()) for own in want)
    assert_close(run_batch(given), want)
    assert_close(run_batch(given[::-1])[::-1], want)
    assert_close(run_batch(given[1:2] + given[3:]), want[1:2] + want[3:])
    assert_close([by_user(given[3].run(), given[3])], want[3:])


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_user_that_diverges_moves_nobody_else(bad):
    model, shape = network()
    given = works(model, shape, Recipe(2, 4, 0.1))
    want = run_batch(given)
    given[1].users.data.x[given[1].users.data.starts[1]] = bad
    got = run_batch(given)
    assert not bool(got[1][1].isfinite().all())
    want[1][1], got[1][1] = 0.0, 0.0
    assert_close(got, want)


def test_some_users_of_a_silo_and_none_of_another():
    model, shape = network()
    given = works(model, shape, Recipe(2, 4, 0.1))
    want = apart(given)
    some = works(model, shape, Recipe(2, 4, 0.1), counts=COUNTS[:2], users=np.array([1, 0]))[1]
    got = run_batch([given[0], some])
    assert_close([got[1][:2]], [want[1][:2]])
    assert bool(got[1][2:].isnan().all())
    [nobody] = works(
        model, shape, Recipe(2, 4, 0.1), counts=COUNTS[:1], users=np.array([], dtype=int)
    )
    assert nobody.batch_key is None
    assert list(nobody.run()) == []


def test_pooled_silos_train_together():
    given = works(*network(), Recipe(2, 4, 0.1), pooled=True)
    want = apart(given)
    assert [len(own) for own in want] == [1, 1, 1, 1]
    assert_close(run_batch(given), want)


@pytest.mark.skipif(library() is None, reason="no C++ compiler")
def test_on_several_threads_compiled_training_has_the_same_bits():
    model, shape = network(p=0.5)
    recipe = Recipe(3, 4, 0.1)
    run = works(model, shape, recipe, execution=Execution("compiled"))
    assert {work.batch_key for work in run} == {None}
    want = apart(run)
    for own, other in zip(
        run_batch(works(model, shape, recipe, execution=Execution("compiled", 2))),
        want,
        strict=True,
    ):
        assert torch.equal(own, other)


def test_silos_that_differ_in_more_than_records_train_apart():
    model, shape = network()
    recipe, start = Recipe(2, 4, 0.1), flatten(model).double().numpy()
    [like] = {work.batch_key for work in works(model, shape, recipe)}
    other, _ = network()
    moved = replace(works(model, shape, recipe)[0].training, start=start + 1e-9)
    for batch_key in (
        works(model, shape, Recipe(2, 4, 0.2))[0].batch_key,
        works(model, shape, Recipe(2, 5, 0.1))[0].batch_key,
        works(other, shape, recipe)[0].batch_key,
        replace(works(model, shape, recipe)[0], training=moved).batch_key,
    ):
        assert batch_key not in (None, like)
    adam = Recipe(2, 4, 0.1, Adam())
    for given in (
        works(model, shape, recipe, correction=np.ones_like(start)),
        works(model, shape, adam, memory={}),
        works(model, shape, recipe, execution=PLAIN),
    ):
        assert {work.batch_key for work in given} == {None}
    assert None not in {work.batch_key for work in works(model, shape, adam)}


@pytest.mark.parametrize("memory", [False, True])
def test_users_trained_one_by_one_are_blocks_of_one_with_the_bits_of_a_training_alone(memory):
    model, shape = network()
    recipe = Recipe(2, 3, 0.1, Sgd(0.5 if memory else 0.0))
    kept = {"velocity": np.ones(len(flatten(model)))} if memory else None
    [work] = works(model, shape, recipe, execution=PLAIN, counts=COUNTS[1:2], memory=kept)
    trainer = work.trainer
    assert trainer.blocks(work.users.counts, work.users.size) == [(0, 4)]
    blocks = list(work.run())
    assert [block.units.tolist() for block in blocks] == [[unit] for unit in work.users.ids]
    for place, block in enumerate(blocks):
        alone, slots = trainer.run(work.users.part(slice(place, place + 1)), kept)
        assert torch.equal(block.vectors, alone)
        assert block.memory.keys() == slots.keys() == ({"velocity"} if memory else set())
        assert all(torch.equal(block.memory[name], slots[name]) for name in slots)
