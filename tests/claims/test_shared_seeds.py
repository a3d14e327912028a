"""Optimizers of Opacus whose generators share a seed: one message shows the other's noise."""

import pytest
import torch
from opacus import PrivacyEngine


def released(seed, noise, records):
    """What one client's step adds to a model of 1,000 weights, with gradients of zero."""
    torch.manual_seed(0)
    model = torch.nn.Linear(100, 10, bias=False)
    data = torch.utils.data.TensorDataset(torch.zeros(records, 100))
    loader = torch.utils.data.DataLoader(data, batch_size=records)
    private, optimizer, loader = PrivacyEngine().make_private(
        module=model,
        optimizer=torch.optim.SGD(model.parameters(), lr=1.0),
        data_loader=loader,
        noise_multiplier=noise,
        max_grad_norm=1.1,
        poisson_sampling=False,
        noise_generator=torch.Generator().manual_seed(seed),
    )
    before = model.weight.detach().clone()
    for (batch,) in loader:
        private(batch).sum().backward()
        optimizer.step()
    return (model.weight.detach() - before) * records / noise


@pytest.mark.filterwarnings("ignore")
def test_a_shared_seed_cancels_the_noise():
    one, two = released(7, 2.0, 30), released(7, 3.0, 85)
    other = released(8, 3.0, 85)
    assert one.std() == pytest.approx(1.1, rel=0.1)
    assert (one - two).abs().max() < 1e-4
    assert (one - other).std() == pytest.approx(1.1 * 2**0.5, rel=0.1)
