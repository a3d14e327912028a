"""TensorFlow Federated: differentially private aggregators.

`tff.learning.dp_aggregator(noise_multiplier, clients_per_round)` adapts its clipping bound, and
`DifferentiallyPrivateFactory.gaussian_fixed(noise_multiplier, clients_per_round, clip)` fixes it.
Both clip the updates of clients and noise their sum at the server.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from fedpriv.claims import schema as s
from fedpriv.claims.importers import draft
from fedpriv.claims.importers.syntax import calls

ADAPTIVE = ("dp_aggregator", "gaussian_adaptive")
FIXED = "gaussian_fixed"


def read_tff(files: Iterable[Path]) -> draft.Draft:
    """The draft of all aggregators in `files`."""
    found = draft.Draft("TensorFlow Federated")
    for file in files:
        for call in calls(file, {}, found.unread):
            if call.name not in (*ADAPTIVE, FIXED):
                continue
            found.files.append(call.place)
            multiplier = call.value("noise_multiplier", 0)
            bound = call.value("clip", 2) if call.name == FIXED else None
            found.releases.append(
                draft.release(
                    f"sum of updates, {call.place}",
                    scope="all",
                    contributor=s.USER,
                    clip=draft.product(bound),
                    tensors=1,
                    noise=draft.noise(
                        s.GAUSSIAN, deviation=draft.product(multiplier, bound), added_by=s.BY_SERVER
                    ),
                )
            )
            if call.branched:
                found.unread.append(f"{call.place}: {call.name} {draft.BRANCHED}")
            if call.name != FIXED:
                found.unread.append(f"{call.place}: the clipping bound adapts while it runs")
    if not found.releases:
        found.unread.append("no call that adds noise was found")
    return found
