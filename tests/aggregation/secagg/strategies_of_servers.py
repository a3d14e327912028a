"""What cheating servers tell silos."""

from __future__ import annotations

from secure_sums import names

from fedpriv.aggregation.secagg.threat_model import ALL, Claim, Setting, View, Witnesses


def split(setting: Setting, witnesses: Witnesses = Witnesses.RECEIPTS) -> View:
    """As few victims as possible are told that only they, the colluding silos and some others have
    shared. All others are told that everybody has, and leave the some others out."""
    every = names(setting.silos)
    honest = setting.silos - setting.colluding
    out = setting.silos - setting.cohort
    victims = max(1, setting.threshold - setting.colluding - out)
    colluding = frozenset(every[honest:])
    misled = frozenset(every[:victims])
    left_out = frozenset(every[victims : victims + out])
    everybody = frozenset(every)
    few = Claim(listed=misled | colluding | left_out, roster=everybody)
    all_others = Claim(listed=everybody, sets=(everybody - left_out,))
    claims = {name: few if name in misled else all_others for name in every[:honest]}
    return View(setting=setting, claims=claims, colluding=colluding, witnesses=witnesses)


def two_sets(setting: Setting, checks=ALL) -> View:
    """Half of the honest silos sign another set than the others."""
    every = names(setting.silos)
    honest = every[: setting.silos - setting.colluding]
    everybody = frozenset(every)
    sets = [frozenset(every[: setting.cohort]), frozenset(every[-setting.cohort :])]
    claims = {
        name: Claim(listed=everybody, sets=(sets[place % 2],)) for place, name in enumerate(honest)
    }
    colluding = everybody - set(honest)
    return View(setting=setting, claims=claims, colluding=colluding, checks=checks)


def five_sets(checks=ALL) -> View:
    """Each of five silos is asked to sign another set of three, so that three are left out by
    three."""
    setting = Setting(silos=5, candidates=5, cohort=3, threshold=3)
    everybody = frozenset(names(5))
    left_out = ["01", "12", "02", "01", "23"]
    claims = {
        name: Claim(listed=everybody, sets=(everybody - {f"silo{i}" for i in out},))
        for name, out in zip(names(5), left_out)
    }
    return View(setting=setting, claims=claims, checks=checks)


def two_sessions(setting: Setting) -> View:
    """Two rosters of the first and of the last candidates, each summed by itself."""
    every = names(setting.silos)
    rosters = [frozenset(every[: setting.candidates]), frozenset(every[-setting.candidates :])]
    claims = {}
    for session, roster in enumerate(rosters):
        chosen = frozenset(sorted(roster)[: setting.cohort])
        for name in roster:
            claims[name] = Claim(listed=roster, sets=(chosen,), session=session)
    return View(setting=setting, claims=claims)
