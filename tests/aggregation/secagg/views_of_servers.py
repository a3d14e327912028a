"""All views that a cheating server can arrange in small settings, and a search of leaks in larger
ones."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations, combinations_with_replacement, product

from secure_sums import names
from server_evaluator import Claim, ServerView, Setting, Witnesses

SPLITTABLE = {
    3: {(2, 2, 0)},
    4: {(3, 3, 1)},
    5: {(3, 3, 0), (4, 3, 0), (4, 4, 2)},
    6: {(4, 4, 0), (4, 4, 1), (5, 4, 1), (5, 5, 3)},
}
"""(cohort, threshold, colluding) of settings that the rule allows, and that leak if all silos that
have delivered may sign; by silos."""


def settings_of(silos: int) -> Iterator[Setting]:
    """All settings in which all silos are candidates."""
    for cohort, threshold, colluding in product(
        range(1, silos + 1), range(1, silos + 1), range(silos)
    ):
        if threshold <= cohort and colluding < threshold:
            yield Setting(
                silos=silos,
                candidates=silos,
                cohort=cohort,
                threshold=threshold,
                colluding=colluding,
            )


def subsets(members, least: int = 0, most: int | None = None) -> Iterator[frozenset[str]]:
    members = sorted(members)
    for size in range(least, (len(members) if most is None else most) + 1):
        yield from map(frozenset, combinations(members, size))


def claims_for(name: str, setting: Setting) -> Iterator[Claim | None]:
    """All that a silo can be told. What it would refuse at once is left out."""
    every = frozenset(names(setting.silos))
    yield None
    for session, others in product((0, 1), subsets(every - {name})):
        listed = others | {name}
        asked = [(), *((one,) for one in subsets(listed, setting.cohort, setting.largest))]
        for sets in asked:
            yield Claim(listed=listed, sets=sets, session=session, roster=every)


def leaking_view(setting: Setting, witnesses: Witnesses) -> ServerView | None:
    """The first view that leaks, of all there are; None if there is none."""
    every = names(setting.silos)
    honest = every[: setting.silos - setting.colluding]
    colluding = frozenset(every[len(honest) :])
    choices = [[*claims_for(name, setting)] for name in honest]
    for told in product(*choices):
        claims = {name: claim for name, claim in zip(honest, told) if claim is not None}
        view = ServerView(setting=setting, claims=claims, colluding=colluding, witnesses=witnesses)
        if view.leaks:
            return view
    return None


def leaking_types(setting: Setting, witnesses: Witnesses) -> ServerView | None:
    """A view that leaks, of all up to the names of silos; None if there is none.

    Colluding silos sign everything, and are on every list. An honest silo matters by the lists that
    it is on, the sets that it is in, the list that it is told and whether it signs. The lists that
    matter are those of the statements with enough signatures and one that a readable message is
    masked for. So silos of one type are interchangeable, and a view is a number of silos of each
    type. The search is complete where one statement at most can have enough signatures, and tries
    two statements elsewhere.
    """
    every = names(setting.silos)
    honest = every[: setting.silos - setting.colluding]
    colluding = frozenset(every[len(honest) :])
    statements = 1 if setting.one_statement else 2
    for count in range(1, statements + 1):
        types = [*_types(count)]
        least = max(0, setting.cohort - len(colluding))
        for some in combinations_with_replacement(types, len(honest)):
            inside = [sum(one[0][i] == 2 for one in some) for i in range(count)]
            if any(not least <= size <= setting.cohort for size in inside):
                continue
            view = _view_of(setting, witnesses, dict(zip(honest, some)), count, colluding)
            if view.leaks:
                return view
    return None


def _types(count: int):
    """(places, other, own, signs): per statement 0 outside, 1 on its list, 2 in its set; whether on
    the other list; the list that it is told (count for the other one, -1 for none)."""
    for places in product((0, 1, 2), repeat=count):
        for other in (False, True):
            yield places, other, -1, False
            if other:
                yield places, other, count, False
            for own in range(count):
                if places[own]:
                    yield places, other, own, False
                    yield places, other, own, True


def _view_of(setting, witnesses, types, count, colluding):
    lists = [
        frozenset(name for name, (places, *_) in types.items() if places[i]) | colluding
        for i in range(count)
    ]
    lists.append(frozenset(name for name, (_, other, *_) in types.items() if other) | colluding)
    sets = []
    for i in range(count):
        inside = frozenset(name for name, (places, *_) in types.items() if places[i] == 2)
        sets.append(inside | frozenset(sorted(colluding)[: setting.cohort - len(inside)]))
    claims = {}
    for name, (_, _, own, signs) in types.items():
        if own < 0:
            claims[name] = Claim(listed=frozenset())
            continue
        claims[name] = Claim(listed=lists[own], sets=(sets[own],) if signs else ())
    return ServerView(setting=setting, claims=claims, colluding=colluding, witnesses=witnesses)
