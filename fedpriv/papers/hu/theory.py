"""The utility bounds of Hu, Guo, Gong for CDP-FedAvg, and a regularised logistic regression to test
them on.

R. Hu, Y. Guo, Y. Gong: Concentrated differentially private and utility preserving federated
learning, Theorem 2 and Lemma 6. Symbols: eta -> lr, L -> smoothness, lambda -> strong_convexity,
beta^2 -> variance (bound on the variance of one record's gradient), gamma -> batch_size, d ->
parameters, sigma -> noise, r -> cohort, tau -> local_steps, K -> iterations, f(theta^0) - f* ->
gap. Gradients are not clipped.

The printed bounds have half of the proof's terms in eta L (d sigma^2 / r + beta^2 / gamma), B_k in
appendix D: but the average of a constant over all iterations is not half of it. The printed bounds
fail for a quadratic with one device, where the mean of |grad f|^2 tends to eta L d sigma^2 / (2 -
eta L). `printed=False` keeps the proof's terms.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import expit

from fedpriv.papers.logistic import LogisticRisk, bounded_breast_cancer


@dataclass(frozen=True)
class Convergence:
    """The quantities in both bounds.

    lr: eta, step size.
    smoothness: L.
    strong_convexity: lambda.
    variance: beta^2, bound on the variance of one record's gradient.
    batch_size: gamma.
    parameters: d.
    noise: sigma, standard deviation of the noise on one step's gradient.
    cohort: r, devices a round.
    local_steps: tau.
    iterations: K, local steps of a device over the whole run.
    gap: f(theta^0) - f*.
    """

    lr: float
    smoothness: float
    strong_convexity: float
    variance: float
    batch_size: int
    parameters: int
    noise: float
    cohort: int
    local_steps: int
    iterations: int
    gap: float

    @property
    def applies(self) -> bool:
        """Whether the step size meets the proofs' condition: 5 eta L + 3 tau^2 eta^2 L^2 <= 1."""
        step = self.lr * self.smoothness
        return 5 * step + 3 * (self.local_steps * step) ** 2 <= 1

    def _floor(self, printed: bool) -> float:
        """The part of the bound on |grad f|^2 that does not shrink with the iterations."""
        step = self.lr * self.smoothness
        drift = (self.local_steps - 1) * (2 * self.local_steps - 1)
        sampling = self.variance / self.batch_size
        noise = self.parameters * self.noise**2
        averaged = step * (noise / self.cohort + sampling) / (2 if printed else 1)
        return (
            averaged
            + drift * step**2 * (2 * sampling + noise * (self.cohort + 1) / self.cohort) / 3
        )

    def gradient_bound(self, printed: bool = True) -> float:
        """Theorem 2: bound on the mean over all iterations of E |grad f|^2 at the devices' averaged
        model."""
        return 2 * self.gap / (self.lr * self.iterations) + self._floor(printed)

    def gap_bound(self, printed: bool = True) -> float:
        """Lemma 6: bound on the mean over all iterations of E f - f* at the devices' averaged
        model."""
        forgotten = (1 - self.lr * self.strong_convexity) / (
            self.iterations * self.lr * self.strong_convexity
        )
        return forgotten * self.gap + self._floor(printed) / (2 * self.strong_convexity)


def breast_cancer_risk(devices: int, strong_convexity: float) -> LogisticRisk:
    """The embedded records, in equal parts for each device."""
    x, y = bounded_breast_cancer()
    each = len(x) // devices
    used = slice(0, each * devices)
    counts = np.full(devices, each)
    parts = x[used].reshape(devices, each, -1), y[used].reshape(devices, each)
    return LogisticRisk(*parts, counts, strong_convexity)


def gradient_variance(risk: LogisticRisk) -> float:
    """beta^2, bound on the variance of a record's gradient: it differs from the regulariser's by at
    most |x|. Parts are of equal sizes."""
    return float((risk.x**2).sum(axis=2).mean(axis=1).max())


def measure(
    risk: LogisticRisk, setting: Convergence, copies: int, *, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Run Algorithm 1 without clipping, `copies` times from theta = 0.

    Returns the means over all iterations of f - f* and of |grad f|^2 at the averaged model,
    (copies,) each.
    """
    devices, records, d = risk.x.shape
    _, least = risk.minimum()
    theta = np.zeros((copies, d))
    gaps = np.zeros(copies)
    squares = np.zeros(copies)
    per_pass = records // setting.batch_size
    for start in range(0, setting.iterations, setting.local_steps):
        chosen = rng.random((copies, devices)).argsort(axis=1)[:, : setting.cohort]
        models = np.repeat(theta[:, None], setting.cohort, axis=1)
        for step in range(min(setting.local_steps, setting.iterations - start)):
            average = models.mean(axis=1)
            gaps += risk.value(average) - least
            squares += (risk.gradient(average) ** 2).sum(axis=1)
            if step % per_pass == 0:
                order = rng.random((copies, setting.cohort, records)).argsort(axis=2)
            part = step % per_pass * setting.batch_size
            rows = order[..., part : part + setting.batch_size]
            x = risk.x[chosen[..., None], rows]
            y = risk.y[chosen[..., None], rows]
            pull = -y * expit(-y * np.einsum("crbd,crd->crb", x, models))
            gradients = (
                np.einsum("crb,crbd->crd", pull, x) / setting.batch_size
                + risk.strong_convexity * models
            )
            models = models - setting.lr * (
                gradients + setting.noise * rng.standard_normal(models.shape)
            )
        theta = models.mean(axis=1)
    return gaps / setting.iterations, squares / setting.iterations
