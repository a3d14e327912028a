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


def a_round(records, data_seed, noise_seed):
    """Weights after FLamby's round of a heart disease centre: 100 steps of rate 0.001, batches of
    4, bound 1.1, and the noise for its target 1.0. Data and samples are fixed; records are made up.
    """
    torch.manual_seed(data_seed)
    features, labels = torch.randn(records, 13), torch.randint(2, (records, 1)).float()
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(13, 1), torch.nn.Sigmoid())
    private, optimizer, loader = PrivacyEngine().make_private(
        module=model,
        optimizer=torch.optim.SGD(model.parameters(), lr=1e-3),
        data_loader=torch.utils.data.DataLoader(
            torch.utils.data.TensorDataset(features, labels), batch_size=4, shuffle=True
        ),
        noise_multiplier=1.2598,
        max_grad_norm=1.1,
        noise_generator=torch.Generator().manual_seed(noise_seed),
    )
    batches = (batch for _ in range(100) for batch in loader)
    for _, (x, y) in zip(range(100), batches):
        torch.nn.functional.binary_cross_entropy(private(x), y).backward()
        optimizer.step()
        optimizer.zero_grad()
    return torch.cat([part.detach().flatten() for part in model.parameters()])


@pytest.mark.filterwarnings("ignore")
def test_the_server_of_flamby_cancels_the_noise_of_two_centres():
    """199 and 85 records. The deviation of their models' difference over seeds of the noise is what
    protects them: 6e-3 with separate seeds, 1e-5 with the same one."""

    def left(shift):
        differences = [a_round(199, 1, n) - a_round(85, 2, n + shift) for n in range(4)]
        return torch.stack(differences).std(0).mean().item()

    assert left(1000) == pytest.approx(6e-3, rel=0.4)
    assert left(0) < 5e-5
