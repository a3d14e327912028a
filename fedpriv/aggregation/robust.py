"""Sums in the clear that a few Byzantine silos cannot move far: each silo's message enters through
a robust mean, and the total is the number of silos times this mean.

Methods: the coordinate-wise trimmed mean (Yin, Chen, Ramchandran, Bartlett, "Byzantine-Robust
Distributed Learning", ICML 2018, Definition 2), and centred clipping (Karimireddy, He, Jaggi,
"Learning from History for Byzantine Robust Optimization", ICML 2021). The paper clips
around the aggregate of the round before; here the first centre is the coordinate-wise median of the
round, so that nothing is remembered.

Symbols of the papers: beta m is `byzantine`, l is `STEPS`. The radius tau is the distance within
which all messages but `byzantine` lie.

Trust. As `plain`. A robust mean is no sum, so noise shares of other silos do not hide a message:
every observer, that of the released model too, is taken to see all messages, each with its own
noise share alone (unit, adjacency: those of the method).

>>> import numpy as np
>>> messages = np.array([[1.0], [1.2], [0.8], [1e9]])
>>> [Robust(rule).mean(messages).round(2).tolist() for rule in RULES]
[[1.1], [1.1]]
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from fedpriv.aggregation.base import CohortSize, require_setting
from fedpriv.aggregation.plain import Plain, PlainServer
from fedpriv.aggregation.ring import ring_encoding
from fedpriv.rounds.contributors import Weighting
from fedpriv.rounds.plan import ThreatModel
from fedpriv.rounds.query import Query

STEPS = 3
"""How often centred clipping makes the mean the next centre."""


def trimmed_mean(messages: np.ndarray, byzantine: int) -> np.ndarray:
    """In each coordinate the mean without the `byzantine` largest and smallest numbers.

    messages: of the silos, (n_silos, d).
    """
    kept = np.sort(messages, axis=0)[byzantine : len(messages) - byzantine]
    mean: np.ndarray = kept.mean(axis=0)
    return mean


def centred_clipping(messages: np.ndarray, byzantine: int) -> np.ndarray:
    """The mean of messages that are moved towards a centre until all are as near as the
    n - `byzantine` nearest are.

    messages: of the n silos, (n, d).
    """
    centre: np.ndarray = np.median(messages, axis=0)
    for _ in range(STEPS):
        apart = messages - centre
        distances = np.linalg.norm(apart, axis=1)
        radius = np.sort(distances)[len(messages) - byzantine - 1]
        shares = np.minimum(1.0, radius / np.maximum(distances, np.finfo(float).tiny))
        centre = centre + (shares @ apart) / len(messages)
    return centre


RULES = {"trimmed_mean": trimmed_mean, "centred_clipping": centred_clipping}


@dataclass(frozen=True)
class Robust(Plain):
    """A robust mean of the silos' messages, times their number.

    rule: trimmed_mean or centred_clipping.
    byzantine: how many silos may send anything; less than half.
    """

    rule: str = "trimmed_mean"
    byzantine: int = 1

    weighs_at_silos = False

    def __post_init__(self) -> None:
        require_setting(self, "rule", self.rule in RULES, ", ".join(RULES))
        require_setting(self, "byzantine", self.byzantine >= 0, "an integer from 0")

    def mean(self, messages: np.ndarray) -> np.ndarray:
        """The robust mean (d,) of the silos' messages (n_silos, d)."""
        return RULES[self.rule](messages, self.byzantine)

    def cohort_size(self, n_invited: int) -> CohortSize:
        fewer = 2 * self.byzantine < n_invited
        require_setting(self, "byzantine", fewer, f"less than half of the {n_invited} silos")
        return super().cohort_size(n_invited)

    def threat_model(self) -> ThreatModel:
        model = super().threat_model()
        observers = tuple(replace(one, sees_messages=True) for one in model.observers)
        return replace(model, observers=observers)

    def helper(self, name: str, silos: tuple[str, ...], weighting: Weighting) -> RobustServer:
        return RobustServer(silos, weighting, aggregation=self)


@dataclass
class RobustServer(PlainServer):
    """Combines the answers by a robust mean.

    aggregation: has the mean.
    """

    aggregation: Robust = field(kw_only=True)

    def combined(self, query: Query, answers: list[np.ndarray]) -> np.ndarray:
        if query.encoding is not None:
            answers = [ring_encoding(query).decode(answer) for answer in answers]
        return len(answers) * self.aggregation.mean(np.stack(answers))
