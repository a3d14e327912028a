"""Flower's updates, counted where its strategies and `LocalDpMod` add noise.

All of Flower's clipping and noise goes through a few functions, which its modules import by name:

    compute_clip_model_update            clips one array record jointly
    compute_adaptive_clip_model_update   the same with a bound that follows the data
    aggregate_arrayrecords, aggregate    the weighted average of the replies
    add_gaussian_noise_inplace           adds noise of a given deviation to each number

They are observed in every module of Flower that holds them. Clips and the average before a noise
belong to it. A noise without a clip that was seen in this process has an unknown bound, as with
`DifferentialPrivacyClientSideFixedClipping`, whose server trusts the clients to clip.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any, ClassVar

import dp_accounting as dp
from dp_accounting import DpEvent

from fedpriv.claims import draft
from fedpriv.claims import schema as s
from fedpriv.claims.recording.recording import Recording

Given = Mapping[str, Any]
"""Arguments of a call, by name."""
MODULES = (
    "flwr.clientapp.mod",
    "flwr.serverapp.strategy",
    "flwr.client.mod",
    "flwr.server.strategy",
)
"""Where versions of Flower have their modifiers and strategies."""


@dataclass(frozen=True)
class FlowerStep:
    """Noise on the average of the clients' updates, or on the update of one client.

    by_server: whether the server adds it to the average.
    clip: bound of one array record of an update; None if it was not seen or follows the data.
    tensors: array records of an update that are clipped to it each; None if not seen.
    weight: the largest weight of an update in the average, 1 for a client's own; None if not seen.
    deviation: of the noise on each number.
    """

    unit: ClassVar[str] = s.CLIENT

    by_server: bool
    clip: float | None
    tensors: int | None
    weight: float | None
    deviation: float

    def event(self) -> DpEvent:
        """A Gaussian release in which one client's update is replaced. Counts and weights stay:
        they are public."""
        if not (self.clip and self.tensors and self.weight and self.deviation > 0):
            return dp.NonPrivateDpEvent()
        distance = 2 * self.clip * self.weight * self.tensors**0.5
        return dp.GaussianDpEvent(self.deviation / distance)

    def release(self, times: int) -> dict[str, Any]:
        """The noised average or update, so many times."""
        added_by = s.BY_SERVER if self.by_server else s.BY_CLIENTS
        return draft.release(
            "average update of Flower" if self.by_server else "update of a Flower client",
            scope="all" if self.by_server else None,
            contributor=s.CLIENT,
            times=times,
            participation=times,
            clip=self.clip,
            tensors=self.tensors,
            weight=self.weight,
            weights=None if self.by_server else s.FIXED,
            denominator=None if self.by_server else s.FIXED,
            noise=draft.noise(s.GAUSSIAN, deviation=self.deviation, added_by=added_by),
        )


@dataclass
class Seen:
    """What Flower did since the last noise.

    clips: bounds, one for each clipped array record; None where it follows the data.
    replies: updates in the average; 0 if none was seen.
    weight: the largest weight in it.
    """

    clips: list[float | None] = field(default_factory=list)
    replies: int = 0
    weight: float | None = None

    def step(self, deviation: float, by_server: bool) -> FlowerStep:
        """The step that a noise of `deviation` ends."""
        updates = self.replies if by_server else 1
        known = bool(self.clips) and None not in self.clips
        whole = known and updates > 0 and len(self.clips) % updates == 0
        return FlowerStep(
            by_server,
            max(clip for clip in self.clips if clip is not None) if known else None,
            len(self.clips) // updates if whole else None,
            self.weight if by_server else 1.0,
            deviation,
        )


class Observer:
    """Sees what Flower's functions are called with: each method is named as its function, and gets
    the function's module and arguments."""

    def __init__(self, recording: Recording) -> None:
        self.recording = recording
        self.seen = Seen()
        self.local = False

    def compute_clip_model_update(self, place: str, given: Given) -> None:
        """A clip to a fixed bound."""
        self.seen.clips.append(float(given["clipping_norm"]))

    def compute_adaptive_clip_model_update(self, place: str, given: Given) -> None:
        """A clip to a bound that follows the data."""
        self.seen.clips.append(None)

    def aggregate_arrayrecords(self, place: str, given: Given) -> None:
        """The average of messages, with weights that they carry."""
        key = given["weighting_metric_name"]
        self._average([next(iter(one.metric_records.values()))[key] for one in given["records"]])

    def aggregate(self, place: str, given: Given) -> None:
        """The average of (arrays, number of records), in strategies of before messages."""
        self._average([count for _, count in given["results"]])

    def add_localdp_gaussian_noise_to_params(self, place: str, given: Given) -> None:
        """A client's own noise, in versions whose modifier lets another module add it next."""
        self.local = True

    def add_gaussian_noise_inplace(self, place: str, given: Given) -> None:
        """Noise: the end of a step."""
        by_server = not (self.local or ".mod" in place)
        step = self.seen.step(float(given["std_dev"]), by_server)
        self.seen, self.local = Seen(), False
        self.recording.count(step)

    def _average(self, weights: Sequence[float]) -> None:
        total = float(sum(weights))
        self.seen.replies = len(weights)
        self.seen.weight = max(weights) / total if total > 0 else None


OBSERVED = tuple(name for name in vars(Observer) if not name.startswith("_"))


@contextmanager
def observe_flower(recording: Recording) -> Iterator[None]:
    """Count the noises of Flower in this process meanwhile."""
    for name in MODULES:
        try:
            importlib.import_module(name)
        except ImportError:  # of another version
            continue
    observer = Observer(recording)
    flower = [one for one in sys.modules.items() if one[0].startswith("flwr.") and one[1]]
    with ExitStack() as undo:
        for place, module in flower:
            for name in OBSERVED:
                if callable(function := vars(module).get(name)):
                    setattr(module, name, _wrapped(getattr(observer, name), function, place))
                    undo.callback(setattr, module, name, function)
        yield


def _wrapped(
    observe: Callable[[str, Given], None], function: Callable[..., Any], place: str
) -> Callable[..., Any]:
    signature = inspect.signature(function)

    @functools.wraps(function)
    def observed(*args: Any, **named: Any) -> Any:
        observe(place, signature.bind(*args, **named).arguments)
        return function(*args, **named)

    return observed
