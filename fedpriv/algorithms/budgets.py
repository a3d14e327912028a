"""Budgets of groups of users: each group has its own epsilon, and a bound that follows from it.

Boenisch, Muehl, Dziedzic, Rinberg, Papernot: Have it your way: Individualized privacy assignment
for DP-SGD, NeurIPS 2023 ("Scale"); here for users across silos.

All groups share one noise of standard deviation s. A group that needs the noise multiplier z_g
has the bound C_g = s / z_g, so the group with the largest epsilon has the mechanism's bound. The
alternative is one bound and a sampling rate of each group's own. In the limit of many rounds, T
rounds at rate q and multiplier z tell as much as sqrt(T) q sqrt(exp(1 / z^2) - 1) standard
deviations (Bu, Dong, Long, Su: Deep learning with Gaussian differential privacy, 2020), more than
the sqrt(T) q / z of a bound scaled by q. Against an observer who sees the sample, such as the
server of most aggregations, a rate gains nothing. A bound holds against all.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

from fedpriv.accountants.events import ADD_REMOVE
from fedpriv.certificates.sampling import Coins
from fedpriv.errors import ConfigError, require
from fedpriv.mechanisms.calibration import composed_noise
from fedpriv.rounds.user_groups import UserGroup
from fedpriv.util.untrusted_files import read_bytes

COLUMNS = ("user", "group")
MOST_BYTES = 2**26


@lru_cache(maxsize=16)
def listed_groups(path: str, key: str) -> Mapping[str, tuple[int, ...]]:
    """The users of each group in a CSV file with the columns `user`, numbers from 0, and `group`;
    other columns are ignored. Read once a process.

    key: setting that names the file, for errors.

    Raises ConfigError for a file that cannot be read, that lacks a column, or that has a line
    without a user's number or without a group, or a user twice.
    """
    try:
        text = read_bytes(Path(path), MOST_BYTES).decode("utf-8-sig")
        lines = csv.DictReader(text.splitlines(), strict=True)
        rows = list(lines)
    except (OSError, ValueError, csv.Error) as error:
        raise ConfigError(key, path, f"a CSV file that can be read ({error})") from error
    names = lines.fieldnames or []
    for column in COLUMNS:
        require(names.count(column) == 1, key, path, f"a file with one column {column!r}")
    found: dict[str, list[int]] = {}
    seen: set[int] = set()
    for line, row in enumerate(rows, start=2):
        user, group = row["user"] or "", row["group"]
        number = int(user) if user.isascii() and user.isdecimal() and len(user) < 10 else -1
        new = number >= 0 and number not in seen
        require(new, f"{key}, line {line}", user, "numbers of users from 0, each once")
        require(bool(group), f"{key}, line {line}", "no group", "the name of the user's group")
        seen.add(number)
        found.setdefault(group, []).append(number)
    return {group: tuple(users) for group, users in found.items()}


KEY = "algo.budgets"
ROUNDED = 1e-12
"""Relative margin for the rounding of bounds, which are quotients of noise multipliers."""


@dataclass(frozen=True)
class Budget:
    """The budget of one group of users. The group has either a share, a list or a file.

    epsilon: against an observer of the released models, after all rounds.
    share: share of the users that no list names, above 0; the shares add up to 1.
    users: numbers of the group's users.
    file: public CSV file with the columns user (a number) and group; the group has the users whose
        group is its name.
    rounds: number of rounds, the first ones, that the group takes part in; None: all. A shorter
        time leaves less noise for the same epsilon.
    """

    epsilon: float
    share: float | None = None
    users: list[int] | None = None
    rounds: int | None = None
    file: str | None = None

    def listed(self, name: str) -> tuple[int, ...]:
        """The numbers of the users that a list or file names; empty with a share. Raises
        ConfigError for a file without group `name`."""
        if self.file is None:
            return tuple(self.users or ())
        groups = listed_groups(self.file, f"{KEY}.{name}.file")
        allowed = f"a file with users of group {name}; it has {', '.join(sorted(groups)) or 'none'}"
        require(name in groups, f"{KEY}.{name}.file", self.file, allowed)
        return groups[name]


@dataclass(frozen=True)
class Spending:
    """What all budgets are spent on.

    rounds: number of rounds, with one release each.
    delta: of all budgets.
    rate: probability that a unit is in a release.
    """

    rounds: int
    delta: float
    rate: float


def check_budgets(budgets: Mapping[str, Budget], spending: Spending) -> None:
    """Raise ConfigError for budgets that no groups of users can have."""
    require(bool(budgets), KEY, "{}", "null, or a budget for each group of users")
    require(spending.rounds >= 1, "algo.rounds", spending.rounds, "a positive number of rounds")
    require(0 < spending.delta < 1, "algo.delta", spending.delta, "between 0 and 1")
    listed: set[int] = set()
    for name, budget in budgets.items():
        key = f"{KEY}.{name}"
        require(
            0 < budget.epsilon < math.inf, f"{key}.epsilon", budget.epsilon, "a positive number"
        )
        given = [one for one in (budget.share, budget.users, budget.file) if one is not None]
        require(len(given) == 1, key, "...", "one of share, users and file")
        share = budget.share
        require(share is None or 0 < share <= 1, f"{key}.share", share, "above 0, at most 1")
        for user in budget.listed(name):
            new = user >= 0 and user not in listed
            require(new, f"{key}.users", user, "numbers from 0, each in one group")
            listed.add(user)
        require(budget.users != [], f"{key}.users", "[]", "at least one user")
        own = budget.rounds
        allowed = f"1 to {spending.rounds - 1}, before algo.rounds, or null"
        require(own is None or 1 <= own < spending.rounds, f"{key}.rounds", own, allowed)
    lasting = any(budget.rounds is None for budget in budgets.values())
    require(
        lasting, f"{KEY}.*.rounds", "...", "left out for one group, which takes part to the end"
    )
    shares = [budget.share for budget in budgets.values() if budget.share is not None]
    whole = not shares or abs(math.fsum(shares) - 1) < 1e-9
    require(whole, KEY, f"shares {shares}", "shares that add up to 1")


def noise_multipliers(budgets: Mapping[str, Budget], spending: Spending) -> dict[str, float]:
    """The noise multiplier z_g that each group needs, by its name."""
    return {
        name: needed_noise(
            budget.epsilon, replace(spending, rounds=budget.rounds or spending.rounds)
        )
        for name, budget in budgets.items()
    }


def user_groups(budgets: Mapping[str, Budget], spending: Spending) -> tuple[UserGroup, ...]:
    """The groups, with bounds that are inverse to their noise multipliers."""
    needed = noise_multipliers(budgets, spending)
    least = min(needed.values())
    return tuple(
        UserGroup(
            name,
            least / needed[name],
            share=budget.share or 0.0,
            users=budget.listed(name),
            last_round=budget.rounds,
            epsilon=budget.epsilon,
        )
        for name, budget in budgets.items()
    )


@lru_cache(maxsize=256)
def needed_noise(epsilon: float, spending: Spending) -> float:
    """The noise multiplier at which as many sampled releases cost `epsilon`."""
    from dp_accounting import GaussianDpEvent

    sampling = Coins(spending.rate)
    # At factor 1 all rounds together are one standard deviation apart, if nobody is sampled.
    once = math.sqrt(spending.rounds)
    factor = composed_noise(
        lambda factor: [[(sampling.event(GaussianDpEvent(once * factor), 1, 1), spending.rounds)]],
        ADD_REMOVE,
        epsilon,
        spending.delta,
    )
    return once * factor * (1 + ROUNDED)
