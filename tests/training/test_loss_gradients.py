"""Closed forms of the losses' gradients against autograd."""

import pytest
import torch

from fedpriv.models.tasks import BinaryClassification, Classification, CoxRegression


@pytest.mark.parametrize("scale", [1.0, 50.0])
@pytest.mark.parametrize("lead", [(), (3,)], ids=["one", "batched"])
def test_gradient(lead, scale):
    torch.manual_seed(0)
    weight = torch.rand(*lead, 6) * (torch.arange(6) < 4)
    times = torch.stack([torch.rand(*lead, 6).round(), torch.rand(*lead, 6)], dim=-1)
    for task, y, c in [
        (Classification(), torch.randint(0, 4, (*lead, 6)), 4),
        (BinaryClassification(), torch.rand(*lead, 6).round(), 1),
        (CoxRegression(), times, 1),
    ]:
        outputs = (scale * torch.randn(*lead, 6, c)).requires_grad_()
        task.loss(outputs, y, weight).sum().backward()
        got = task.gradient(outputs.detach(), y, weight)
        torch.testing.assert_close(got, outputs.grad, rtol=1e-4, atol=1e-6)
        assert not got[..., 4:, :].any()  # padding
        with torch.inference_mode():
            buffer = outputs.detach().clone()
            torch.testing.assert_close(
                task.gradient(buffer, y, weight), outputs.grad, rtol=1e-4, atol=1e-6
            )
