"""The cost of noise and clipping in ULDP-AVG by Kato et al., Theorem 6, and their measured cost for
a logistic regression.

F. Kato, L. Xiong, S. Takagi, Y. Cao, M. Yoshikawa: Uldp-FL (PVLDB 2024), Theorem 6, Remarks 2 to 4
and appendix C.6. Symbols: eta_g -> global_lr, eta_l -> local_lr, Q -> local_steps, C -> clip, sigma
-> noise_multiplier, w_su -> weights, L -> smoothness, G -> gradient_bound, d -> parameters. One of
the N = |S||U| pairs of a silo and a user moves the model by its delta times a factor a = w min(1, C
/ |delta|); in a~ the expected delta takes the delta's place, and a_bar is the mean of a~ over all
pairs.

The theorem bounds the mean of |grad f|^2 over all rounds. Its first three terms are those of
FedAVG. The others are

    noise      L eta_g sigma^2 C^2 d / (eta_l Q N^2 a_bar)
    sampling   2 G^2 / (N a_bar) * the sum over pairs of E |a - a~|
    clipping   2 G^2 / (N a_bar) * the sum over pairs of |a~ - a_bar|

Our copy of the paper lacks the formulas. These follow from the steps of appendix C.6 (smoothness,
the noise's variance, bounded gradients), with the constants of these steps. Nothing here is
private.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from scipy.special import expit

from fedpriv.papers.logistic import LogisticRisk, bounded_breast_cancer

BATCH = 4


@dataclass(frozen=True)
class PairRisks(LogisticRisk):
    """f, the mean over the N pairs of a user and a silo of f_su. Features have norms of at most 1.

    users: each pair's user, (N,).
    silos: number of silos.
    """

    users: np.ndarray = field(kw_only=True)
    silos: int = field(kw_only=True)

    gradient_bound = 1.0
    """G: a record's gradient is x times a number below 1."""

    def weights(self, by_records: bool) -> np.ndarray:
        """w_su, (N,): 1 / |S|, or a pair's share of its user's records. A user's weights sum to
        1."""
        if by_records:
            return np.asarray(self.counts / np.bincount(self.users, self.counts)[self.users])
        return np.full(len(self.counts), 1 / self.silos)

    def deltas(
        self, theta: np.ndarray, setting: UldpAvgSetting, copies: int, rng: np.random.Generator
    ) -> np.ndarray:
        """The change of theta (d,) by every pair's local training, `copies` times: (copies, N, d).

        Batches are drawn with replacement, so each step's gradient is unbiased.
        """
        pairs = np.arange(len(self.counts))[:, None]
        moved = np.zeros((copies, len(self.counts), len(theta)))
        for _ in range(setting.local_steps):
            rows = rng.integers(self.counts[:, None], size=(copies, len(self.counts), BATCH))
            x = self.x[pairs, rows]
            y = self.y[pairs, rows]
            pulls = -y * expit(-y * np.einsum("cnbd,cnd->cnb", x, theta + moved))
            moved -= setting.local_lr / BATCH * np.einsum("cnb,cnbd->cnd", pulls, x)
        return moved


@dataclass(frozen=True)
class UldpAvgSetting:
    """The arguments of a ULDP-AVG run.

    clip: C.
    noise_multiplier: sigma.
    by_records: whether a user's weights follow its records; otherwise they are 1 / |S|.
    local_lr: eta_l.
    local_steps: Q.
    global_lr: eta_g.
    """

    clip: float
    noise_multiplier: float
    by_records: bool
    local_lr: float
    local_steps: int
    global_lr: float


TERMS = ("noise", "sampling", "clipping")
"""Parts of the bound on |grad f|^2: of the noise, of the bias from batches, and of that between
pairs."""


def measure_overheads(
    risks: PairRisks,
    setting: UldpAvgSetting,
    rounds: int,
    copies: int,
    *,
    rng: np.random.Generator,
) -> dict[str, float]:
    """Run ULDP-AVG (Algorithm 3) from theta = 0.

    Returns means over all rounds: the theorem's terms; what they bound, as `noise_measured` and so
    on; and |grad f|^2 as `gradient`.

    risks: the losses.
    setting: arguments of the algorithm.
    rounds: how many.
    copies: local trainings and noise draws a round; expectations are means over them, and the run
        continues from the first.
    rng: draws batches and noise.

    The cost of noise is the increase of f that it causes. The cost of a bias is the change in the
    descent of f along its gradient without the bias. The unit is the theorem's: a round's descent
    of f over a_bar eta_g eta_l Q / 2.
    """
    pairs = len(risks.counts)
    d = risks.x.shape[2]
    weights = risks.weights(setting.by_records)
    theta = np.zeros(d)
    step = setting.global_lr / pairs
    found: list[list[float]] = []
    for _ in range(rounds):
        deltas = risks.deltas(theta, setting, copies, rng)
        actual = weights * _factor(deltas, setting.clip)
        expected = weights * _factor(deltas.mean(axis=0), setting.clip)
        mean = expected.mean()
        unit = mean * setting.global_lr * setting.local_lr * setting.local_steps / 2
        gradient = risks.gradient(theta)
        noise = rng.standard_normal((copies, d))
        noise *= step * setting.noise_multiplier * setting.clip
        moved = theta + step * np.einsum("cn,cnd->cd", actual, deltas)
        lifted = (risks.value(moved + noise) + risks.value(moved - noise)) / 2 - risks.value(moved)
        sampling = np.einsum("cn,cnd->d", actual - expected, deltas) / copies
        clipping = (expected - mean) @ deltas.mean(axis=0)
        biases = np.abs([step * gradient @ bias for bias in (sampling, clipping)])
        costs = np.array([lifted.mean(), *biases]) / unit
        found.append([*_terms(risks, setting, actual, expected), *costs, gradient @ gradient])
        theta = moved[0] + noise[0]
    names = [*TERMS, *(f"{term}_measured" for term in TERMS), "gradient"]
    return dict(zip(names, np.mean(found, axis=0).tolist()))


def _terms(
    risks: PairRisks, setting: UldpAvgSetting, actual: np.ndarray, expected: np.ndarray
) -> np.ndarray:
    pairs = len(expected)
    mean = float(expected.mean())
    variance = (setting.noise_multiplier * setting.clip) ** 2 * risks.x.shape[2]
    steps = setting.local_lr * setting.local_steps
    noise = risks.smoothness * setting.global_lr * variance / (steps * pairs**2 * mean)
    factor = 2 * risks.gradient_bound**2 / (pairs * mean)
    sampling = np.abs(actual - expected).mean(axis=0).sum()
    return np.array([noise, factor * sampling, factor * np.abs(expected - mean).sum()])


def _factor(deltas: np.ndarray, clip: float) -> np.ndarray:
    """min(1, C / |delta|) along the last axis."""
    return np.asarray(clip / np.maximum(np.linalg.norm(deltas, axis=-1), clip))


def breast_cancer_pairs(users: int, silos: int) -> PairRisks:
    """The embedded records by user and silo.

    The records of users, and of a user's silos, follow Zipf's law with exponent 1/2. Every pair has
    records.
    """
    from fedpriv.data.embedded import BreastCancer
    from fedpriv.data.random_allocators import Zipf
    from fedpriv.util.streams import Streams

    data = BreastCancer()
    records = data.load(Streams(0)).train
    owned = Zipf(users, silos, alpha_silo=0.5, local_test=0.0).allocate(records, data, Streams(0))
    counts = owned.counts()
    x, y = bounded_breast_cancer()
    padded_x = np.zeros((silos * users, counts.max(), x.shape[1]))
    padded_y = np.ones((silos * users, counts.max()))
    for pair, (silo, user) in enumerate(np.ndindex(silos, users)):
        own = np.flatnonzero((owned.silo == silo) & (owned.user == user))
        padded_x[pair, : len(own)] = x[own]
        padded_y[pair, : len(own)] = y[own]
    pair_users = np.tile(np.arange(users), silos)
    return PairRisks(padded_x, padded_y, counts.reshape(-1), users=pair_users, silos=silos)
