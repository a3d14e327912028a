import math

import pytest

from fedpriv.mechanisms.calibration import paper_noise


def test_equation_2():
    """sigma^2 = 8 G^2 T ln(1 / delta) / (m^2 n^2 epsilon^2), in units of G / n."""
    assert paper_noise(50, 10, 2.0, 1e-5) ** 2 == pytest.approx(
        8 * 50 * math.log(1e5) / (10 * 2.0) ** 2
    )
