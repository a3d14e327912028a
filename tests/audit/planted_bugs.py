"""Careless changes of fedpriv, each of which makes a certificate false.

A bug is planted by patching the code that a run executes. `check_algorithm` and `fedpriv audit`
know nothing of it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch

from fedpriv.aggregation.plain import PlainServer
from fedpriv.certificates import noise
from fedpriv.certificates.request import ObservedRelease, Row
from fedpriv.mechanisms.base import TrainingNoise, clipped_rows
from fedpriv.mechanisms.gaussian import Gaussian
from fedpriv.rounds.contributors import UniformWeighting, Users
from fedpriv.rounds.mixing import Past
from fedpriv.runtime.silo import SiloWork
from fedpriv.training import dp_sgd, noisy_steps
from fedpriv.training.clipped import ClippedGradients
from fedpriv.util.streams import Streams

Patch = pytest.MonkeyPatch

SGD = ("algo=uldp_sgd", "algo.noise_multiplier=1", "rounds=3")
SOME = (*SGD, "allocator.n_silos=5", "aggregation=secagg", "aggregation.cohort=4")
AVG = ("algo=uldp_avg", "algo.noise_multiplier=1", "rounds=3", "algo.local_epochs=2")
GROUP = ("algo=uldp_group_2", "algo.noise_multiplier=1", "algo.local_epochs=1", "rounds=2")
MIXED = (*SGD, "algo.cycle=2", "mechanism=correlated", "mechanism.bands=3")
STEPS = ("algo=cdp_fedavg", "algo.local_steps=4", "allocator.n_users=10", "rounds=2")


@dataclass(frozen=True)
class Bug:
    """A planted bug.

    name: what is wrong.
    words: the audited command.
    plant: patches the code.
    """

    name: str
    words: tuple[str, ...]
    plant: Callable[[Patch], None]

    def __str__(self) -> str:
        return self.name


BUGS: list[Bug] = []


def bug(name: str, *words: str) -> Callable[[Callable[[Patch], None]], Callable[[Patch], None]]:
    """Register the decorated function as a bug of the command `words`."""

    def register(plant: Callable[[Patch], None]) -> Callable[[Patch], None]:
        BUGS.append(Bug(name, words, plant))
        return plant

    return register


# -- mechanisms ------------------------------------------------------------------------------------


def shares(patch: Patch, change: Callable[[SiloWork, object, np.ndarray], np.ndarray]) -> None:
    """Replace each silo's noise share by change(work, query, share)."""
    drawn = SiloWork.noise

    def changed(self, local, query):
        share, secret = drawn(self, local, query)
        return change(self, query, share), secret

    patch.setattr(SiloWork, "noise", changed)


@bug("noise in round 1 only", *SGD)
def noise_in_round_one_only(patch):
    shares(patch, lambda work, query, share: share * (query.round == 1))


@bug("noise in the first two rounds only", *SGD)
def noise_in_two_rounds_only(patch):
    shares(patch, lambda work, query, share: share * (query.round <= 2))


def renamed(patch: Patch, purpose: str, change: Callable[[int, str], tuple[int, str]]) -> None:
    """Secret streams of `purpose` are those of change(round, party)."""
    secret, coins = Streams.secret, Streams.unit_coins

    def place(asked, round, party):
        return change(round, party) if purpose in asked else (round, party)

    patch.setattr(
        Streams,
        "secret",
        lambda self, asked, round, party="": secret(self, asked, *place(asked, round, party)),
    )
    patch.setattr(
        Streams,
        "unit_coins",
        lambda self, asked, round, party, units: coins(
            self, asked, *place(asked, round, party), units
        ),
    )


@bug("every round has the noise of round 1", *SGD)
def noise_of_another_round(patch):
    renamed(patch, "noise", lambda round, party: (1, party))


@bug("in sums over some silos every round has the noise of round 1", *SOME)
def noise_of_another_round_in_sums_over_some_silos(patch):
    noise_of_another_round(patch)


@bug("every silo draws the same noise", *SGD)
def noise_of_another_silo(patch):
    renamed(patch, "noise", lambda round, party: (round, ""))


@bug("noise from a constant seed", *SGD)
def noise_from_a_constant_seed(patch):
    share = Gaussian.noise_share
    patch.setattr(
        Gaussian,
        "noise_share",
        lambda self, size, shares, rng, **more: share(
            self, size, shares, np.random.default_rng(7), **more
        ),
    )


def subtract_noise_of_the_round_before(patch):
    past: dict[tuple[int, str, int], np.ndarray] = {}

    def change(work, query, share):
        silo = work.participant.silo
        before = past.get((id(silo.plan), silo.name, query.round - 1))
        past[id(silo.plan), silo.name, query.round] = share
        # The variance of one round stays that of its event.
        return share if before is None else (share - before) / np.sqrt(2)

    shares(patch, change)


@bug("each round subtracts half of the noise of the round before", *SGD)
def noise_that_cancels_over_rounds(patch):
    subtract_noise_of_the_round_before(patch)


@bug("one silo forgets its noise share", *SGD)
def a_forgotten_share(patch):
    shares(patch, lambda work, query, share: share * (work.participant.silo.index > 0))


@bug("a share of one n-th of the deviation, not of the variance", *SGD)
def shares_of_the_deviation(patch):
    patch.setattr(
        Gaussian,
        "share_deviation",
        lambda self, shares, sensitivity=1.0: (
            self.noise_multiplier * self.clip * sensitivity / shares
        ),
    )


@bug("no noise on the last coordinate", *SGD)
def no_noise_on_the_last_coordinate(patch):
    shares(patch, lambda work, query, share: np.append(share[:-1], 0.0))


@bug("noise on the first half of the coordinates", *SGD)
def noise_on_half_of_the_coordinates(patch):
    shares(
        patch,
        lambda work, query, share: share * (np.arange(len(share)) < len(share) // 2),
    )


# -- clipping and weights --------------------------------------------------------------------------


def bounds(patch: Patch, change: Callable[[Gaussian, torch.Tensor], torch.Tensor]) -> None:
    """Contributions are bounded by `change`."""
    bound = Gaussian.bound
    patch.setattr(
        Gaussian, "bound", lambda self, vectors: (change(self, vectors), bound(self, vectors)[1])
    )


@bug("the clip follows the weights", *AVG)
def clip_after_weighting(patch):
    bounds(patch, lambda self, vectors: 3 * clipped_rows(vectors / 3, self.clip)[0])


def clip_of_a_part(patch):
    """Not in the list: it is found by the attack alone."""

    def first_two(self, vectors):
        clipped = clipped_rows(vectors[:, :2], self.clip)[0]
        return torch.cat([clipped, vectors[:, 2:].double()], dim=1)

    bounds(patch, first_two)


@bug("each half of a vector has the whole clip", *AVG)
def clip_by_layer(patch):
    def halves(self, vectors):
        middle = vectors.shape[1] // 2
        parts = vectors[:, :middle], vectors[:, middle:]
        return torch.cat([clipped_rows(part, self.clip)[0] for part in parts], dim=1)

    bounds(patch, halves)


@bug("weights that add up to 1.05", *AVG)
def heavy_weights(patch):
    patch.setattr(
        UniformWeighting,
        "own_weights",
        lambda self, silo, shape: np.broadcast_to(1.05 / shape[0], shape[1]),
    )


@bug("a user of several silos has weight 1 in each", *AVG)
def a_user_weighs_in_full_everywhere(patch):
    patch.setattr(
        UniformWeighting,
        "own_weights",
        lambda self, silo, shape: np.broadcast_to(1.0, shape[1]),
    )


@bug("the server adds one silo twice", *SGD)
def one_silo_counts_twice(patch):
    query = PlainServer.query

    def twice(self, asked, broadcast):
        total = yield from query(self, asked, broadcast)
        first = asked.invited[:1]
        contents = total.vector.copy()
        return replace(total, vector=contents * (1 + len(first) / len(total.silos)))

    # The sum's noise grows with it. What a silo subtracts does not.
    patch.setattr(PlainServer, "query", twice)
    shares(patch, lambda work, asked, share: share / (1 + 1 / asked.n_summed))


# -- sampling --------------------------------------------------------------------------------------


class HalvedUniforms:
    """A generator whose uniform numbers are half as large, so that twice as many units pass."""

    def __init__(self, rng: np.random.Generator) -> None:
        self.rng = rng

    def random(self, size: int) -> np.ndarray:
        return self.rng.random(size) / 2


@bug("twice as many users are sampled as declared", *SGD, "algo.user_rate=0.2")
def twice_the_user_rate(patch):
    secret = Streams.secret

    def halved(self, purpose, round, party=""):
        rng = secret(self, purpose, round, party)
        return HalvedUniforms(rng) if purpose == "user sample" else rng

    patch.setattr(Streams, "secret", halved)


@bug("the same users are sampled in every round", *SGD, "algo.user_rate=0.2")
def the_same_users(patch):
    renamed(patch, "user sample", lambda round, party: (1, party))


@bug("twice as many records are drawn in DP-SGD as declared", *GROUP, "algo.batch_size=20")
def twice_the_record_rate(patch):
    coins = Streams.unit_coins

    def halved(self, purpose, round, party, units):
        whole = coins(self, purpose, round, party, units)
        return lambda step: whole(step) / 2

    patch.setattr(Streams, "unit_coins", halved)


@bug("the same records are drawn in every round", *GROUP, "algo.batch_size=20")
def the_same_batch(patch):
    renamed(patch, "record sample", lambda round, party: (1, party))


# -- resume ----------------------------------------------------------------------------------------


def repeated(patch: Patch, change: Callable[[np.ndarray], np.ndarray]) -> None:
    """A silo that does a round for the second time has another noise share."""
    seen: dict[tuple[int, int, int, str], object] = {}

    def changed(work, query, share):
        silo = work.participant.silo
        streams = silo.plan.streams  # a run that is resumed keeps them
        key = id(streams), query.round, query.place, silo.name
        again = key in seen
        seen[key] = streams
        return change(share) if again else share

    shares(patch, changed)


@bug("no noise in a round that is done again", *SGD)
def no_noise_after_a_resume(patch):
    repeated(patch, np.zeros_like)


@bug("other noise in a round that is done again", *SGD)
def other_noise_after_a_resume(patch):
    repeated(patch, lambda share: share[::-1].copy())


# -- events ----------------------------------------------------------------------------------------


@bug("a silo's own noise share counts against itself", *SGD)
def own_share_counts(patch):
    patch.setattr(ObservedRelease, "unknown_shares", property(lambda self: self.n_summed))


@bug("a tenth of the sensitivity", *AVG)
def a_tenth_of_the_sensitivity(patch):
    reach = Users.reach
    patch.setattr(Users, "reach", lambda self, *given, **more: reach(self, *given, **more) / 10)


@bug("the event counts half of the steps of DP-SGD", *GROUP, "algo.batch_size=20")
def half_of_the_steps(patch):
    declared = noise.DpSgdNoise.event

    def halved(self, view):
        def half(records):
            steps, rate = self.plan(records)
            return max(1, steps // 2), rate

        return declared(noise.DpSgdNoise(half), view)

    patch.setattr(noise.DpSgdNoise, "event", halved)


# -- training --------------------------------------------------------------------------------------


@bug("DP-SGD clips the sum of a batch, not its records", *GROUP)
def clip_of_the_batch(patch):
    def loose(self, model, task, clip, **more):
        made(self, model, task, 1e3 * clip, **more)

    made = ClippedGradients.__init__
    patch.setattr(ClippedGradients, "__init__", loose)


@bug("local steps are not noised, except for the last", *STEPS)
def silent_steps(patch):
    steps = noisy_steps.NoisySteps

    def silent(*given, noise, **more):
        return steps(*given, noise=replace(noise, deviation=0.0), **more)

    patch.setattr(noisy_steps, "NoisySteps", silent)


@bug("the noise of local steps is a tenth too small", *STEPS)
def quiet_steps(patch):
    add = TrainingNoise.add

    def less(self, *given, **more):
        return add(replace(self, deviation=0.9 * self.deviation), *given, **more)

    patch.setattr(TrainingNoise, "add", less)


@bug("DP-SGD divides its noise by the batch twice", *GROUP)
def noise_divided_twice(patch):
    train = dp_sgd.dp_sgd

    def less(recipe, **more):
        factor = max(1.0, recipe.expected_batch)
        return train(replace(recipe, noise_multiplier=recipe.noise_multiplier / factor), **more)

    patch.setattr(dp_sgd, "dp_sgd", less)


@bug(
    "the order of a user's batches depends on who else is there",
    *("algo=uldp_avg", "algo.noise_multiplier=1", "algo.local_epochs=2", "algo.batch_size=8"),
    "rounds=1",
)
def order_by_position(patch):
    keys = Streams.unit_keys

    def by_position(self, purpose, round, party, units):
        places = np.arange(len(units)) if purpose == "batches" else units
        return keys(self, purpose, round, party, places)

    patch.setattr(Streams, "unit_keys", by_position)


# -- messages that repeat earlier rounds -----------------------------------------------------------


@bug("messages repeat earlier sums three times as strongly", *MIXED)
def strong_repetition(patch):
    repeated_part = Past.repeated
    patch.setattr(Past, "repeated", lambda self, *given: 3 * repeated_part(self, *given))


@bug("users take part in every round, not in their turn", *MIXED)
def no_turns(patch):
    patch.setattr(Users, "bounds", lambda self, federation, round: None)


@bug("a message is charged for its own round alone", *MIXED)
def own_round_alone(patch):
    def own(self):
        here = (self.round - 1) % self.contributors.turns == self.turn
        return Row(self.mechanism.mixing.coefficients[0] if here else 0.0, 1)

    patch.setattr(ObservedRelease, "row", property(own))


@bug("each message takes back half of the noise of the message before", *MIXED)
def mixed_noise(patch):
    subtract_noise_of_the_round_before(patch)
