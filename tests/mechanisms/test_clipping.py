import pytest
import torch

from fedpriv.errors import ConfigError
from fedpriv.mechanisms.base import check_clip_and_noise, clipped_rows


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_what_is_clipped_stays_as_it_was(dtype):
    """An algorithm may go on with what it has handed over."""
    given = torch.tensor([[3.0, 4.0], [0.0, 0.5]], dtype=dtype)
    rows, norms = clipped_rows(given, 1.0)
    torch.testing.assert_close(rows, torch.tensor([[0.6, 0.8], [0.0, 0.5]], dtype=torch.float64))
    assert norms.tolist() == [5.0, 0.5]
    assert given.tolist() == [[3.0, 4.0], [0.0, 0.5]]


def test_a_bound_whose_square_is_zero_is_refused():
    check_clip_and_noise(1e-100, 1.0)
    with pytest.raises(ConfigError, match=r"algo\.clip=1e-162"):
        check_clip_and_noise(1e-162, 1.0)
