"""Seeded Gaussian noise by counters."""

import ctypes

import numpy as np
import pytest
import torch
from scipy import special

from fedpriv.training.trainers.compiled.build_folder import source_texts
from fedpriv.training.trainers.compiled.library import library, native_library
from fedpriv.training.trainers.gpu import normals
from fedpriv.training.trainers.gpu.nvrtc import build
from fedpriv.util.streams import Streams

TEXTS = source_texts("fedpriv.training.trainers.gpu")


def generator():
    return Streams(3).generator("noise", 5, "silo-1")


def test_it_is_the_inverse_of_the_normal_distribution():
    words = np.concatenate(
        [
            generator().bit_generator.random_raw(100_000),
            np.array([0, 2**12, 2**63, 2**64 - 1], dtype=np.uint64),
        ]
    )
    u = ((words >> np.uint64(12)).astype(float) + 0.5) * 2.0**-52
    assert 0 < u.min() < u.max() < 1
    got = normals.normals(words)
    want = np.where(u < 0.5, special.ndtri(u), -special.ndtri(1 - u))
    np.testing.assert_allclose(got, want, rtol=2e-14, atol=1e-15)
    assert abs(got[:100_000].mean()) < 0.015
    assert abs(got[:100_000].std() - 1) < 0.01


def test_noise_goes_on_where_it_ended():
    rng = generator()
    parts, whole = torch.zeros(13, dtype=torch.float64), torch.zeros(13, dtype=torch.float64)
    for part in (parts[:8], parts[8:]):
        normals.add_normals(part, 2.0, rng)
    normals.add_normals(whole, 2.0, generator())
    assert torch.equal(parts, whole)
    assert float(whole.abs().min()) > 0


@pytest.mark.skipif(library() is None, reason="needs a C++ compiler")
def test_the_kernel_has_the_bits_of_numpy(tmp_path):
    flags = ("-std=c++17", "-O2", "-ffp-contract=off", "-fPIC", "-shared")
    path = native_library(tmp_path, "normals", TEXTS, normals.SOURCE, flags)
    loaded = ctypes.CDLL(str(path))
    start = torch.linspace(-1, 1, 100_003, dtype=torch.float64)
    got, want = start.clone(), start.clone()
    rng = generator()
    rng.bit_generator.advance(2**64 - 7)  # the counter carries
    loaded.add_noise(ctypes.byref(normals.noise_spec(got, 0.7, rng)))
    normals.add_normals(want, 0.7, rng)
    assert torch.equal(got, want)


def test_it_compiles_for_a_gpu(tmp_path):
    pytest.importorskip("cuda.bindings.nvrtc")
    path = build(TEXTS, normals.SOURCE, "sm_80", tmp_path, normals.FLAGS)
    assert path.read_bytes()[:4] == b"\x7fELF"


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_a_gpu_has_the_bits_of_numpy():
    start = torch.linspace(-1, 1, 100_003, dtype=torch.float64)
    got, want = start.to("cuda"), start.clone()
    one, other = generator(), generator()
    for _ in range(2):
        normals.add_normals(got, 0.7, one)
        normals.add_normals(want, 0.7, other)
    assert torch.equal(got.cpu(), want)
