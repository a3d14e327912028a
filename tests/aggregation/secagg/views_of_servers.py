"""All views that a cheating server can arrange in small settings, and a search of leaks in larger
ones."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations, combinations_with_replacement, product

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
    every = setting.everybody
    yield None
    for session, others in product((0, 1), subsets(every - {name})):
        listed = others | {name}
        asked = [(), *((one,) for one in subsets(listed, setting.cohort, setting.largest))]
        for sets in asked:
            yield Claim(listed=listed, sets=sets, session=session, roster=every)


def a_view_leaks(setting: Setting, witnesses: Witnesses) -> bool:
    """Whether any of all views leaks."""
    for told in product(*[[*claims_for(name, setting)] for name in setting.honest]):
        claims = {name: claim for name, claim in zip(setting.honest, told) if claim is not None}
        if view_of(setting, witnesses, claims).leaks:
            return True
    return False


def view_of(setting, witnesses, claims):
    return ServerView(
        setting=setting, claims=claims, colluding=setting.colluders, witnesses=witnesses
    )


NOTHING, OWN, OTHER = None, 0, 1
"""Which list a silo is told."""
TYPES = [
    (place, on_other, told, signs)
    for place, on_other in product((0, 1, 2), (False, True))
    for told, signs in ((NOTHING, False), (OTHER, False), (OWN, False), (OWN, True))
    if told is NOTHING or (on_other if told == OTHER else place)
]
"""What matters of an honest silo: whether it is outside of the statement, on its list, or in its
set; whether it is on the other list; the list that it is told; whether it signs."""


def a_view_of_types_leaks(setting: Setting, witnesses: Witnesses) -> bool:
    """Whether any view leaks, of all up to the names of silos, in a setting in which one statement
    at most can have enough signatures.

    Colluding silos sign everything, and are on every list. The lists that matter are those of the
    statement with enough signatures and one that a readable message is masked for. So silos of one
    type are interchangeable, and a view is a number of silos of each type.
    """
    assert setting.one_statement
    least = setting.cohort - setting.colluding
    for some in combinations_with_replacement(TYPES, len(setting.honest)):
        if not least <= sum(place == 2 for place, *_ in some) <= setting.cohort:
            continue
        if view_of(setting, witnesses, claims_of(setting, dict(zip(setting.honest, some)))).leaks:
            return True
    return False


def claims_of(setting, types):
    inside = {name for name, (place, *_) in types.items() if place == 2}
    witnesses = sorted(setting.colluders)[: setting.cohort - len(inside)]
    lists = {
        NOTHING: frozenset(),
        OWN: {name for name, (place, *_) in types.items() if place} | setting.colluders,
        OTHER: {name for name, (_, other, *_) in types.items() if other} | setting.colluders,
    }
    return {
        name: Claim(
            listed=frozenset(lists[told]), sets=(frozenset({*inside, *witnesses}),) if signs else ()
        )
        for name, (_, _, told, signs) in types.items()
    }
