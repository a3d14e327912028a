"""Record what a private training really does, and write it as a claim.

    with fedpriv.record() as recording:
        train()
    recording.write(Path("claim.yaml"))

A recorder counts steps at the place where noise is added, with the settings of that moment. It
draws no random number and changes no tensor, so the training has the same result with it. What it
cannot see, such as who gets the model and where generators are seeded, stays `unknown`.

    with fedpriv.record(budget=3.0, delta=1e-5):
        train()

stops before the step that would exceed the budget. All steps of a recording count together, so that
a new engine forgets nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from importlib.util import find_spec

from fedpriv.claims.recording.recording import Recording
from fedpriv.errors import ConfigError

_under_way: list[Recording] = []


def record(
    budget: float | None = None, delta: float | None = None
) -> AbstractContextManager[Recording]:
    """Record the optimizers that Opacus makes meanwhile, and Flower's clipping and noise.

    budget, delta: see `Recording`; both or none.

    Raises ConfigError if a recording is under way, and BudgetSpentError in the training.
    """
    return recorded(Recording(budget, delta))


@contextmanager
def recorded(recording: Recording) -> Iterator[Recording]:
    """Go on with a recording that may hold steps of before. One at a time."""
    if _under_way:
        raise ConfigError("record", "nested", "one recording at a time")
    with ExitStack() as hooks:
        _under_way.append(recording)
        hooks.callback(_under_way.clear)
        if find_spec("opacus"):
            from fedpriv.claims.recording.opacus_steps import observe_opacus

            hooks.enter_context(observe_opacus(recording))
        if find_spec("flwr"):
            from fedpriv.claims.recording.flower_updates import observe_flower

            hooks.enter_context(observe_flower(recording))
        yield recording
