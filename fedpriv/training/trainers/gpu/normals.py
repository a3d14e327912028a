"""Seeded Gaussian noise on the device of what it is added to.

The numbers are a function of a generator's key and counter, with equal bits on a processor and on a
GPU: the words of numpy's Philox, turned into normal numbers by additions, products, quotients and
roots, each of which is rounded by itself. They are for simulations: everyone who knows the seed
knows them. Noise that protects somebody is `fedpriv.mechanisms.grid_noise`'s.
"""

from __future__ import annotations

import ctypes
from functools import cache

import numpy as np
import torch
from numpy.polynomial.polynomial import polyval
from torch import Tensor

from fedpriv.training.layers.compiled_specs import fields
from fedpriv.training.trainers.compiled.build_folder import source_texts
from fedpriv.training.trainers.gpu.nvrtc import FAILURES, Function, index_of

SOURCE = "normals.cpp"
FLAGS = ("--fmad=false",)
"""A fused multiply-add would round once where numpy rounds twice."""
THREADS = 256
BLOCKS_A_PROCESSOR = 8
WORDS = 4
"""Words of one value of the counter."""


class Noise(ctypes.Structure):
    """As in normals.cpp."""

    _fields_ = [
        *fields(ctypes.c_void_p, "to"),
        *fields(ctypes.c_double, "deviation"),
        *fields(ctypes.c_uint64, "n"),
        ("key", ctypes.c_uint64 * 2),
        ("counter", ctypes.c_uint64 * 4),
    ]


def add_normals(to: Tensor, deviation: float, rng: np.random.Generator) -> None:
    """Add Gaussian noise of standard deviation `deviation` to `to` (n,) float64, in place, and move
    `rng`, a Philox that has given whole blocks of words so far, past it."""
    noise = noise_spec(to, deviation, rng)
    on_gpu = to.device.type == "cuda"
    function = _function(index_of(to.device)) if on_gpu else None
    if function is None:
        words = rng.bit_generator.random_raw(-(-len(to) // WORDS) * WORDS)[: len(to)]
        to += torch.from_numpy(normals(words) * deviation).to(to.device)
        return
    function.launch(noise, BLOCKS_A_PROCESSOR * function.processors, THREADS)
    rng.bit_generator.advance(-(-len(to) // WORDS))  # type: ignore[attr-defined]


def noise_spec(to: Tensor, deviation: float, rng: np.random.Generator) -> Noise:
    """What the kernel is told."""
    state = rng.bit_generator.state
    inner = state["state"]
    assert state["buffer_pos"] == WORDS
    return Noise(
        to.data_ptr(),
        deviation,
        len(to),
        (ctypes.c_uint64 * 2)(*inner["key"].tolist()),
        (ctypes.c_uint64 * 4)(*inner["counter"].tolist()),
    )


@cache
def _function(index: int) -> Function | None:
    device = torch.device("cuda", index)
    try:
        return Function(source_texts(__package__), SOURCE, "add_noise", device, FLAGS)
    except FAILURES:
        return None


def normals(words: np.ndarray) -> np.ndarray:
    """(n,) float64: for each uint64, the normal number below which a uniform number of its first 52
    bits lies. Operation by operation as in normals.cpp, where the source is named."""
    u = ((words >> np.uint64(12)).astype(np.float64) + 0.5) * 2.0**-52
    q = u - 0.5
    r = 0.180625 - q * q
    found: np.ndarray = q * polyval(r, A) / polyval(r, B)
    far = np.flatnonzero(np.abs(q) > 0.425)
    below = q[far] < 0
    r = np.sqrt(-_logarithm(np.where(below, u[far], 1 - u[far])))
    near = polyval(r - 1.6, C) / polyval(r - 1.6, D)
    size = np.where(r <= 5, near, polyval(r - 5, E) / polyval(r - 5, F))
    found[far] = np.where(below, -size, size)
    return found


def _logarithm(x: np.ndarray) -> np.ndarray:
    m, e = np.frexp(x)
    low = m < 0.70710678118654757
    m = np.where(low, m * 2, m)
    e = np.where(low, e - 1, e)
    s = (m - 1) / (m + 1)
    series = tuple(1.0 / (2 * i + 1) for i in range(11))
    found: np.ndarray = e * 0.69314718055994529 + s * 2 * polyval(s * s, series)
    return found


A = (
    3.3871328727963666080e0,
    1.3314166789178437745e2,
    1.9715909503065514427e3,
    1.3731693765509461125e4,
    4.5921953931549871457e4,
    6.7265770927008700853e4,
    3.3430575583588128105e4,
    2.5090809287301226727e3,
)
B = (
    1.0,
    4.2313330701600911252e1,
    6.8718700749205790830e2,
    5.3941960214247511077e3,
    2.1213794301586595867e4,
    3.9307895800092710610e4,
    2.8729085735721942674e4,
    5.2264952788528545610e3,
)
C = (
    1.42343711074968357734e0,
    4.63033784615654529590e0,
    5.76949722146069140550e0,
    3.64784832476320460504e0,
    1.27045825245236838258e0,
    2.41780725177450611770e-1,
    2.27238449892691845833e-2,
    7.74545014278341407640e-4,
)
D = (
    1.0,
    2.05319162663775882187e0,
    1.67638483018380384940e0,
    6.89767334985100004550e-1,
    1.48103976427480074590e-1,
    1.51986665636164571966e-2,
    5.47593808499534494600e-4,
    1.05075007164441684324e-9,
)
E = (
    6.65790464350110377720e0,
    5.46378491116411436990e0,
    1.78482653991729133580e0,
    2.96560571828504891230e-1,
    2.65321895265761230930e-2,
    1.24266094738807843860e-3,
    2.71155556874348757815e-5,
    2.01033439929228813265e-7,
)
F = (
    1.0,
    5.99832206555887937690e-1,
    1.36929880922735805310e-1,
    1.48753612908506148525e-2,
    7.86869131145613259100e-4,
    1.84631831751005468180e-5,
    1.42151175831644588870e-7,
    2.04426310338993978564e-15,
)
"""Numerators and denominators of the middle, of the tails, and of the far tails."""
