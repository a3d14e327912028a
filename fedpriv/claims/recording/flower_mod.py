"""A Flower mod that stops a client before its messages exceed a budget.

    from fedpriv.claims.recording.flower_mod import BudgetMod
    from flwr.clientapp import ClientApp
    from flwr.clientapp.mod import LocalDpMod

    app = ClientApp(mods=[BudgetMod(epsilon=3.0, delta=1e-5), LocalDpMod(1.0, 1.0, 0.5, 1e-5)])

It stands first, so that it sees what the mods after it and the client's own training do. What was
spent is kept in the client's context, which Flower hands on from message to message; an accountant
that is made anew for each message forgets it.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from fedpriv.claims.recording.flower_updates import FlowerStep
from fedpriv.claims.recording.opacus_steps import OpacusStep
from fedpriv.claims.recording.record import recorded
from fedpriv.claims.recording.recording import BudgetSpentError, NoisedStep, Recording

KINDS: dict[str, type[FlowerStep] | type[OpacusStep]] = {"flower": FlowerStep, "opacus": OpacusStep}
STATE = "fedpriv.spent"
"""Key of the record in the client's context."""


class BudgetMod:
    """Stops a client's training once `epsilon` would be exceeded.

    unit: a record of the client for Opacus steps (add/remove); the client's whole update for the
        noise of `LocalDpMod` (replacement).
    observer: the server, for noise that it cannot predict.
    Covers the noised steps of train messages alone: metrics that a client sends along are released
    beside it. A client that dies in mid-training and remembers what it trained is not covered:
    Flower then drops its context.

    Raises BudgetSpentError, which Flower sends to the server as an error in place of a reply, also
    for a reply whose training had no recorded noise.
    """

    def __init__(self, epsilon: float, delta: float) -> None:
        Recording(epsilon, delta)  # refuses what is no budget
        self.epsilon = epsilon
        self.delta = delta

    def __call__(self, message: Any, context: Any, call_next: Callable[[Any, Any], Any]) -> Any:
        """Hand the message on, and count the noise on the way of its reply."""
        if message.metadata.message_type.split(".")[0] != "train":
            return call_next(message, context)
        recording = Recording(self.epsilon, self.delta, steps=_load(context))
        before = recording.steps.total()
        try:
            with recorded(recording):
                reply = call_next(message, context)
        finally:  # a client may keep what it trained before an error
            _save(context, recording.steps)
        if recording.steps.total() == before and not reply.has_error():
            raise BudgetSpentError("a reply without recorded noise spends any budget")
        return reply


def _load(context: Any) -> Counter[NoisedStep]:
    """The steps of earlier messages."""
    steps: Counter[NoisedStep] = Counter()
    if STATE in context.state:
        for kind, settings, count in json.loads(context.state[STATE]["steps"]):
            steps[KINDS[kind](**settings)] += count
    return steps


def _save(context: Any, steps: Counter[NoisedStep]) -> None:
    from flwr.app import ConfigRecord

    rows = [
        [kind, asdict(step), count]
        for kind, made in KINDS.items()
        for step, count in steps.items()
        if isinstance(step, made)
    ]
    context.state[STATE] = ConfigRecord({"steps": json.dumps(rows)})
