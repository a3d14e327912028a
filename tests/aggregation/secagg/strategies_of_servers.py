"""What cheating servers tell silos."""

from __future__ import annotations

from dataclasses import replace
from random import Random

from secure_sums import names
from server_evaluator import Claim, ServerView, Setting, Witnesses


def split(setting: Setting, witnesses: Witnesses = Witnesses.RECEIPTS) -> ServerView:
    """As few victims as possible are told that only they, the colluding silos and some others have
    shared. All others are told that everybody has, and leave the some others out."""
    every = names(setting.silos)
    out = setting.silos - setting.cohort
    victims = max(1, setting.threshold - setting.colluding - out)
    misled = frozenset(every[:victims])
    left_out = frozenset(every[victims : victims + out])
    few = Claim(listed=misled | setting.colluders | left_out, roster=setting.everybody)
    all_others = Claim(listed=setting.everybody, sets=(setting.everybody - left_out,))
    claims = {name: few if name in misled else all_others for name in setting.honest}
    return ServerView(
        setting=setting, claims=claims, colluding=setting.colluders, witnesses=witnesses
    )


def two_sets(setting: Setting) -> ServerView:
    """Half of the honest silos sign another set than the others."""
    every = names(setting.silos)
    sets = [frozenset(every[: setting.cohort]), frozenset(every[-setting.cohort :])]
    claims = {
        name: Claim(listed=setting.everybody, sets=(sets[place % 2],))
        for place, name in enumerate(setting.honest)
    }
    return ServerView(setting=setting, claims=claims, colluding=setting.colluders)


def two_sessions(setting: Setting) -> ServerView:
    """Two rosters of the first and of the last candidates, each summed by itself."""
    every = names(setting.silos)
    rosters = [frozenset(every[: setting.candidates]), frozenset(every[-setting.candidates :])]
    claims = {}
    for session, roster in enumerate(rosters):
        chosen = frozenset(sorted(roster)[: setting.cohort])
        for name in roster:
            claims[name] = Claim(listed=roster, sets=(chosen,), session=session)
    return ServerView(setting=setting, claims=claims)


def random_view(chance: Random, setting: Setting, witnesses=Witnesses.RECEIPTS) -> ServerView:
    """A view in which silos are told one to three stories, with changes: lists, sets, rosters with
    several keys of colluding silos, keys that the server has put in."""
    colluding = setting.colluders
    stories = [_story(chance, setting, colluding, session) for session in range(3)]
    if chance.random() < 0.7:  # often one roster
        stories = [replace(story, session=0, roster=stories[0].roster) for story in stories]
    stories = stories[: chance.choice([1, 2, 2, 3])]
    claims, numbers = {}, {}
    for name in setting.honest:
        claim = chance.choice(stories)
        roster = claim.roster | {name}
        if len(roster) != len(claim.roster):
            claim = replace(claim, roster=roster)
        listed = (claim.listed | {name}) & roster
        taken = frozenset()
        if chance.random() < 0.03:
            taken = frozenset(sorted(roster - {name} - colluding)[:1])
        sets = tuple(chosen for chosen in claim.sets if chosen <= listed)
        if chance.random() < 0.05:
            sets = ()
        # Rosters of the same keys are one session.
        keys = claim.session if colluding & roster or taken else 0
        session = numbers.setdefault((roster, taken, keys), len(numbers))
        if chance.random() < 0.97:
            claims[name] = replace(claim, listed=listed, sets=sets, replaced=taken, session=session)
    return ServerView(setting=setting, claims=claims, colluding=colluding, witnesses=witnesses)


def _story(chance: Random, setting: Setting, colluding: frozenset[str], session: int) -> Claim:
    size = chance.randint(max(setting.cohort, len(colluding)), setting.candidates)
    roster = colluding | frozenset(chance.sample(sorted(setting.honest), size - len(colluding)))
    listed = frozenset(name for name in sorted(roster) if chance.random() < 0.85) | colluding
    size = setting.cohort
    if setting.most is not None:
        size = chance.randint(setting.cohort, setting.most)
    if chance.random() < 0.03:
        size -= 1
    sets = ()
    if size <= len(listed):
        sets = (frozenset(chance.sample(sorted(listed), size)),)
    return Claim(listed=listed, sets=sets, session=session, roster=roster)
