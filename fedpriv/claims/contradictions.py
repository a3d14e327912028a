"""Fields of a release that contradict each other."""

from __future__ import annotations

import math
from collections.abc import Callable

from fedpriv.accountants.events import RELEASED_MODEL, SERVER
from fedpriv.claims import schema as s
from fedpriv.errors import require


def check_consistent(release: s.NoisyRelease, path: str) -> None:
    """Refuse what cannot be, in one line with both fields. Raises ConfigError.

    path: of the release in its file.
    """
    for key, holds, allowed in CONSISTENT:
        require(holds(release), f"{path}.{key}", _at(release, key), allowed(release))


def _at(release: s.NoisyRelease, key: str) -> str:
    """What a release says for a dotted key."""
    value: object = release
    for name in key.split("."):
        value = dict(value)[name] if isinstance(value, tuple) else getattr(value, name)
    return ", ".join(value) if isinstance(value, tuple) else str(value)[:60]


def _in_passes(release: s.NoisyRelease) -> tuple[int, int]:
    """In how many releases of shuffled passes a contributor can be: fewer if the last batch of a
    pass is smaller, more if a pass ends before it."""
    sampling = release.sampling
    steps = (math.ceil(sampling.of / sampling.batch), max(1, sampling.of // sampling.batch))
    fewest, most = (math.ceil(release.times / one) for one in steps)
    return fewest, most


def _sees_enough(who: str) -> Callable[[s.NoisyRelease], bool]:
    """Whether an observer sees what everybody sees."""
    order = s.SIGHTS.index
    return lambda r: order(r.sight(who)) >= order(r.sight(RELEASED_MODEL))


Consistent = tuple[str, Callable[[s.NoisyRelease], bool], Callable[[s.NoisyRelease], str]]
CONSISTENT: tuple[Consistent, ...] = (
    ("scope", lambda r: bool(r.scope.strip()), lambda r: "a name, or all"),
    (
        "scope",
        lambda r: r.scope == s.EVERYWHERE or r.scope.strip().lower() != s.EVERYWHERE,
        lambda r: "write all in small letters",
    ),
    ("participation", lambda r: r.participation <= r.times, lambda r: f"at most times={r.times}"),
    (
        "participation",
        lambda r: r.sampling.drawn != s.ONCE or r.participation == r.times,
        lambda r: f"sampling.drawn=once: one sample for all, so times={r.times}",
    ),
    (
        "sampling.batch",
        lambda r: r.sampling.batch <= r.sampling.of,
        lambda r: f"at most of={r.sampling.of}",
    ),
    (
        "participation",
        lambda r: (
            r.sampling.rule != s.SHUFFLED
            or r.participation in range(_in_passes(r)[0], _in_passes(r)[1] + 1)
        ),
        lambda r: "sampling.batch={0.batch} of {0.of} shuffled, once in a pass: {1} to {2}".format(
            r.sampling, *_in_passes(r)
        ),
    ),
    (
        "noise.shares",
        lambda r: (
            r.contributor != s.CLIENT
            or r.sampling.rule not in (s.WITHOUT_REPLACEMENT, s.SHUFFLED)
            or r.noise.shares <= r.sampling.batch
        ),
        lambda r: f"sampling.batch={r.sampling.batch}: at most so many clients send a share",
    ),
    (
        "noise.generator",
        lambda r: r.noise.generator != s.SHARED or r.noise.added_by in (s.BY_CLIENTS, s.BY_HOLDER),
        lambda r: f"noise.added_by={r.noise.added_by}: clients share no noise",
    ),
    *(
        (
            f"seen.{who}",
            _sees_enough(who),
            lambda r: f"at least what everybody sees ({r.sight(RELEASED_MODEL)})",
        )
        for who in s.WHO[1:]
    ),
    (
        "sampling.hidden_from",
        lambda r: not r.sampling.hidden_from or RELEASED_MODEL in r.sampling.hidden_from,
        lambda r: f"what the {RELEASED_MODEL} shows is hidden from nobody",
    ),
    (
        f"seen.{SERVER}",
        lambda r: (
            r.noise.mechanism == s.NO_NOISE
            or r.noise.added_by != s.BY_SERVER
            or r.sight(SERVER) != s.NOTHING
        ),
        lambda r: "noise.added_by=server: the server adds the noise, so it sees the sum",
    ),
)
"""What the fields of a release say together: where it shows, whether it can be, and what can be."""
