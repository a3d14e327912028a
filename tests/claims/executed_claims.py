"""An independent judge: what two neighbouring data sets release when a claim is executed.

`lower_bound` reads a claim as plain data and follows the executed steps: who is drawn, who sends
what, who adds noise, what the observer sees. It shares no code with fedpriv. Data sets, vectors of
others and numbers of others are as bad as the judge knows. Its epsilon is a lower bound: exact
where the worst pair is known (everything, Poisson, one sample for all), an attack elsewhere.

A contributor with noise of its own sends neither vector nor noise while it is absent. Vectors have
as many coordinates as it takes to read the scale of noise, and with it a count, off a release.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from scipy.stats import binom, hypergeom
from two_points import (
    NOTHING,
    Gaussian,
    LaplaceSum,
    Largest,
    Pair,
    composed,
    epsilon,
    hidden_coin,
    revealed,
    shifted,
    told_apart,
)

Steps = list[tuple[Pair, int]]
Number = dict[int, float]
"""Probabilities of how many of the unit's contributors a release has."""
UNITS = ("record", "user", "client")
MOST_OTHERS = 12
"""The most clients in a world in which the observer counts shares of noise."""


@dataclass(frozen=True)
class Scene:
    """One release, executed for one statement.

    release: the claim's entry.
    statement: the guarantee.
    k: contributors with data of the unit.
    """

    release: dict[str, Any]
    statement: dict[str, Any]
    k: int

    def __getattr__(self, name: str) -> Any:
        return self.release[name]

    @property
    def sight(self) -> str:
        return self.seen[self.statement["observer"]]

    @property
    def by_client(self) -> bool:
        """A client with data of its own adds noise."""
        return self.noise.get("added_by") in ("clients", "holder of the data")

    @property
    def finer(self) -> bool:
        """The unit is a part of a contributor, which stays under every adjacency."""
        return UNITS.index(self.statement["unit"]) < UNITS.index(self.contributor)

    @property
    def effect(self) -> str:
        """What happens to the unit's contributors: `moved`, `zeroed` or `removed`."""
        moves = {"replace": "moved", "zero-out": "zeroed", "add/remove": "removed"}
        return "moved" if self.finer else moves[self.statement["adjacency"]]

    @property
    def lone(self) -> bool:
        """A contributor that brings its own noise, and none while it is absent."""
        return self.contributor == "client" and self.by_client

    @property
    def shares_in_sum(self) -> bool:
        """The observer sees a sum with one share of noise from each client in it."""
        return self.noise["added_by"] == "clients" and self.sight == "sum"

    @property
    def rule(self) -> str:
        return self.sampling["rule"]

    @property
    def once(self) -> bool:
        return self.sampling.get("drawn") == "once"

    @property
    def bound(self) -> float:
        tensors = self.tensors if self.noise["mechanism"] == "laplace" else math.sqrt(self.tensors)
        return math.inf if self.clip == "none" else self.clip * self.weight * tensors

    @property
    def far(self) -> int:
        """Bounds between the sums of neighbours once a contributor is drawn."""
        hidden = self.rule == "poisson" and not self.visible
        return 2 if self.effect == "moved" and not hidden else 1

    @property
    def counts_change(self) -> bool:
        """Neighbours have different numbers of contributors or records."""
        if self.statement["adjacency"] == "replace":
            return self.statement["unit"] != "record" or self.k > 1
        return self.statement["adjacency"] == "add/remove"

    @property
    def visible(self) -> bool:
        """The observer learns how many of the unit's contributors were drawn."""
        sender = self.contributor == "client" and self.sight == "messages"
        alone = self.lone and self.noise["added_by"] == "holder of the data"
        counted = self.rule == "poisson" and (alone or self.denominator == "counts")
        told = self.statement["observer"] not in self.sampling.get("hidden_from", ())
        return sender or counted or told

    def together(self, j: int) -> float:
        """How far j vectors of one bound move what is seen: each message has noise of its own."""
        if not self.lone or self.sight != "messages":
            return float(j)
        return min(float(j), 1.0) if self.noise["mechanism"] == "laplace" else math.sqrt(j)

    def law(self, together: int | None = None) -> Gaussian | LaplaceSum | None:
        """The noise that the observer does not know; None if it knows all of it.

        together: shares in the sum, instead of the fewest that are stated.
        """
        noise, observer, adder = self.noise, self.statement["observer"], self.noise.get("added_by")
        raw = self.sight == "messages" and not self.by_client
        own = observer == adder == "server"
        if noise["mechanism"] == "none" or raw or own or math.isinf(self.bound):
            return None
        shared = noise["generator"] == "shared by clients" and self.by_client
        known = shared and (
            observer == "client" or (adder == "clients" and self.sight == "messages")
        )
        meets = not self.lone or (self.rule == "everything" and self.participation > 1)
        again = noise["generator"] == "reused over releases" and self.times > 1 and meets
        if noise["generator"] == "public seed" or known or again:
            return None
        shares = noise["shares"] if self.shares_in_sum else 1
        if observer == "client" and (not self.lone or self.rule == "everything"):
            shares = max(1, shares - 1)  # an observer with a share of its own subtracts it
        shares, scale = together or shares, noise["deviation"]
        if shared:
            shares, scale = 1, scale * shares
        laplace = noise["mechanism"] == "laplace"
        return LaplaceSum(scale, shares) if laplace else Gaussian(scale * math.sqrt(shares))

    def number(self, more: int = 0) -> Number:
        """How many of the unit's contributors are drawn, with `more` contributors to draw from."""
        if self.rule == "poisson":
            return _numbers(binom(self.k, self.sampling["rate"]).pmf, self.k)
        if self.rule == "without replacement":
            return drawn(self.sampling["of"] + more, self.k, self.sampling["batch"])
        return {self.k: 1.0}


def _numbers(pmf: Callable[[int], float], k: int) -> Number:
    return {j: float(pmf(j)) for j in range(k + 1) if pmf(j) > 0}


def drawn(of: int, k: int, batch: int) -> Number:
    """How many of k lie in a batch without replacement."""
    return _numbers(hypergeom(of, min(k, of), batch).pmf, min(k, of))


def lower_bound(claim: dict[str, Any]) -> float:
    """The epsilon that the first statement of a claim at least has."""
    statement = claim["claims"][0]
    if claim["complete"] is not True or claim["choices"] != "none":
        return math.inf
    spread, delta = claim["population"][statement["unit"]], statement["delta"]
    scenes = [Scene(each, statement, spread["contributors"]) for each in claim["releases"]]
    scenes = _with_one_sample([scene for scene in scenes if scene.sight != "nothing"])
    found = [(scene.scope, list(candidates(scene, delta))) for scene in scenes]
    return max(_worst(found, spread["scopes"], delta, turned) for turned in (False, True))


SAME = ("scope", "contributor", "times", "participation", "weights", "denominator")


def _with_one_sample(scenes: list[Scene]) -> list[Scene]:
    """Two Gaussian releases with the same sample are one, whose two sums move together."""
    scales = [getattr(scene.law(), "scale", 0.0) for scene in scenes]
    draws = [scene.sampling.get("drawn") for scene in scenes]
    same = [{**s.sampling, "drawn": "", **{key: s.release[key] for key in SAME}} for s in scenes]
    plain = all(s.noise["mechanism"] == "gaussian" and not s.lone for s in scenes) and all(scales)
    if not plain or len(scenes) != 2 or "with another release" not in draws or same[0] != same[1]:
        return scenes
    distance = math.hypot(*(scene.bound / scale for scene, scale in zip(scenes, scales)))
    noise = {"mechanism": "gaussian", "deviation": 1 / distance, "generator": "independent"}
    one = max(scenes, key=lambda scene: scene.visible)
    joined = {
        **one.release,
        **dict.fromkeys(("clip", "tensors", "weight"), 1.0),
        "noise": {**noise, "added_by": "trusted third party"},
        "sampling": one.sampling | {"drawn": "once" if "once" in draws else "each time"},
        "seen": dict.fromkeys(one.seen, "sum"),
    }
    return [Scene(joined, one.statement, one.k)]


def _worst(found: list[tuple[str, list[Steps]]], scopes: int, delta: float, turned: bool) -> float:
    """The worst scopes for the unit, each release with its worst candidate, in one direction."""
    by_scope: dict[str, Steps] = {}
    for scope, options in found:
        steps = [[(p.reversed() if turned else p, t) for p, t in option] for option in options]
        worst = max(steps, key=lambda each: epsilon(each, delta)) if len(steps) > 1 else steps[0]
        by_scope.setdefault(scope, []).extend(worst)
    everywhere = by_scope.pop("all", [])
    named = list(by_scope.values())
    if len(named) > scopes:
        named = sorted(named, key=lambda each: -epsilon(each, delta))[:scopes]
    steps = everywhere + [step for each in named for step in each]
    return epsilon(steps, delta) if steps else 0.0


def candidates(scene: Scene, delta: float) -> Iterator[Steps]:
    """What the observer may see of one release under two neighbours, as bad as the judge knows."""
    law, removed = scene.law(), scene.effect == "removed"
    gone = removed and scene.by_client and scene.statement["unit"] == "client"
    arbitrary = "depends on data" in (scene.weights, scene.denominator)
    if arbitrary or (gone and not scene.lone):  # a client that never sends nor adds noise
        yield [(revealed(1.0), 1)]
        return
    counted = scene.denominator == "counts" and scene.counts_change
    sender = gone and (scene.visible or scene.rule == "everything")
    shown = law is None or counted or sender
    if scene.rule == "shuffled":
        yield from _shuffled(scene, None if shown else law)
    elif shown or law is None:
        absent = scene.number().get(0, 0.0)
        yield [(revealed(1 - absent), 1 if scene.once else scene.participation)]
    elif scene.lone and scene.rule == "poisson" and scene.shares_in_sum:
        yield from _counted(scene)
    elif scene.once and isinstance(law, LaplaceSum):
        yield [(_one_coin(scene, law, delta), 1)]
    else:
        yield from _sampled(scene, law)


def _sampled(scene: Scene, law: Gaussian | LaplaceSum) -> Iterator[Steps]:
    """Samples drawn anew, or one Gaussian sum of releases with the same sample."""
    times = scene.participation
    if scene.once and isinstance(law, Gaussian):
        law, times = Gaussian(law.scale / math.sqrt(times)), 1
    elif times < scene.times and scene.rule != "everything":
        yield from _capped(scene, law)
    for branches in _numbers_seen(scene):
        for first, second in _moves(scene):
            seen = [(w, w, _pair(law, scene, number, first, second)) for w, number in branches]
            yield [(told_apart(seen), times)]
    if scene.rule == "without replacement" and scene.effect == "removed":
        grown = scene.number(more=scene.k)
        yield [(_pair(law, scene, grown, lambda j: 2 * j, lambda j: 0), times)]


def _numbers_seen(scene: Scene) -> list[list[tuple[float, Number]]]:
    """What the observer knows of who was drawn: branches, each with its probability."""
    number = scene.number()
    hidden = [(1.0, number)]
    if scene.rule == "everything":
        return [hidden]
    batches = scene.rule == "without replacement"
    if scene.visible:  # a removed contributor leaves its place in a list, or to another one
        known = [(chance, {j: 1.0}) for j, chance in number.items()]
        return [known, hidden] if batches and scene.effect == "removed" else [known]
    if batches and scene.statement["observer"] == scene.contributor == "client":
        of, batch = scene.sampling["of"], scene.sampling["batch"]
        if scene.k < of > batch:  # the observer's own place says something about the other places
            places = [(batch / of, drawn(of - 1, scene.k, batch - 1))]
            return [[*places, (1 - batch / of, drawn(of - 1, scene.k, batch))]]
    return [hidden]


def _capped(scene: Scene, law: Gaussian | LaplaceSum) -> Iterator[Steps]:
    """One contributor is drawn from all releases until it has taken part as often as it may."""
    one = Scene(scene.release, scene.statement, 1)
    rate, most = one.number().get(1, 0.0), scene.participation
    far = scene.far
    drawn_at_all = -math.expm1(scene.times * math.log1p(-min(rate, 1 - 1e-16)))
    if scene.visible and isinstance(law, Gaussian):
        often = [(j, float(binom.pmf(j, scene.times, rate))) for j in range(most)]
        often.append((most, float(binom.sf(most - 1, scene.times, rate))))
        seen = [
            (w, w, _pair(law, one, {j: 1.0}, lambda j: far * math.sqrt(j), lambda j: 0))
            for j, w in often
            if w > 1e-12
        ]
        yield [(told_apart(seen), 1)]
    else:
        first = {scene.bound * far: drawn_at_all, 0.0: 1 - drawn_at_all}  # later vectors are zero
        yield [(shifted(Largest(law, scene.times), first, {0.0: 1.0}), 1)]


Move = Callable[[float], float]


def _moves(scene: Scene) -> Iterator[tuple[Move, Move]]:
    """How far j drawn contributors move the sum, in bounds, from one constant.

    A batch of fixed size replaces a contributor that is not drawn by another one, whose vector may
    be opposite.
    """
    if scene.rule != "without replacement":
        twice = scene.weights == "counts" and scene.rule == "everything"  # weights of others grow
        firsts = {"moved": (1, -1), "zeroed": (1, 0), "removed": (2 if twice else 1, 0)}
        first, second = firsts[scene.effect]
        yield lambda j: first * j, lambda j: second * j
        if scene.effect == "moved" and scene.rule == "poisson":
            yield lambda j: j, lambda j: 0
    elif scene.effect == "moved":
        yield lambda j: 2 * j, lambda j: 0
        yield lambda j: j, lambda j: -j
    else:
        yield lambda j: j, lambda j: 0
        batch, others = scene.sampling["batch"], max(scene.sampling["of"] - scene.k, 0)
        if scene.effect == "zeroed":
            yield lambda j: 2 * j, lambda j: j
        else:
            yield lambda j: 2 * j - batch + min(batch, others), lambda j: 0


def _pair(law: Any, scene: Scene, number: Number, first: Move, second: Move) -> Pair:
    sides = []
    for move in (first, second):
        side: Counter[float] = Counter()
        for j, chance in number.items():
            side[scene.bound * move(scene.together(j))] += chance
        sides.append(side)
    return shifted(law, *sides)


def _one_coin(scene: Scene, law: LaplaceSum, delta: float) -> Pair:
    """One sample for all releases with Laplace noise, by one of the unit's contributors."""
    number = Scene(scene.release, scene.statement, 1).number()
    base = shifted(law, {scene.bound * scene.far: 1.0}, {0.0: 1.0})
    base, rate = composed(base, scene.participation, delta), number.get(1, 0.0)
    if scene.visible:
        return told_apart([(rate, rate, base), (1 - rate, 1 - rate, NOTHING)])
    return hidden_coin(base, rate)


def _counted(scene: Scene) -> Iterator[Steps]:
    """A Poisson sample of clients that add the noise: its scale tells how many were drawn."""
    rate, fewest, k = scene.sampling["rate"], scene.noise["shares"], scene.k
    first, second = next(_moves(scene))
    for clients in {max(fewest, k), min(MOST_OTHERS, max(fewest, k, math.ceil(fewest / rate)))}:
        rest = clients - (k if scene.effect == "removed" else 0)
        branches = [(*(binom.cdf(fewest - 1, of, rate) for of in (clients, rest)), NOTHING)]
        for count in range(fewest, clients + 1):
            p, q = (float(binom.pmf(count, of, rate)) for of in (clients, rest))
            law, number = scene.law(count), drawn(clients, k, count)
            if scene.once and isinstance(law, Gaussian):
                law = Gaussian(law.scale / math.sqrt(scene.participation))
            known = [(w, {j: 1.0}) for j, w in number.items()]
            for w, each in known if scene.visible else [(1.0, number)]:
                branches.append((p * w, q * w, _pair(law, scene, each, first, second)))
        yield [(told_apart(branches), 1 if scene.once else scene.participation)]


def _shuffled(scene: Scene, law: Gaussian | LaplaceSum | None) -> Iterator[Steps]:
    """Passes over shuffled batches. Each contributor is in one unknown batch of each pass."""
    batches = math.ceil(scene.sampling["of"] / scene.sampling["batch"])
    passes, rest = divmod(scene.times, batches)
    share = rest / batches
    if law is None:
        yield [(revealed(1.0 if passes else share), 1)]
        return
    pairs = {"moved": [(2, 0), (1, -1)], "zeroed": [(1, 0), (2, 1)], "removed": [(1, 0)]}
    far = scene.far
    floor = scene.sampling["of"] // scene.sampling["batch"]
    if scene.participation > math.ceil(scene.times / floor) and scene.participation == scene.times:
        yield [(_pair(law, scene, {scene.k: 1.0}, lambda j: far * j, lambda j: 0), scene.times)]
    elif scene.visible or batches == 1:
        number = {scene.k if batches == 1 else 1: 1.0}
        one = _pair(law, scene, number, lambda j: far * j, lambda j: 0)
        steps = [(one, passes * (1 if batches == 1 else scene.k))] if passes else []
        last = told_apart([(share, share, one), (1 - share, 1 - share, NOTHING)])
        yield steps + ([(last, 1)] if rest else [])
    else:
        for first, second in pairs[scene.effect]:
            moves = [{scene.bound * first: 1.0}, {scene.bound * second: 1.0}]
            partly = [{scene.bound * at: share} for at in (first, second)]
            for side in partly:
                side[0.0] = side.get(0.0, 0.0) + 1 - share
            steps = [(shifted(Largest(law, batches), *moves), passes)] if passes else []
            yield steps + ([(shifted(Largest(law, rest), *partly), 1)] if rest else [])
