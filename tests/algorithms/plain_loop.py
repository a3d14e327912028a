"""Federated training as a plain loop over silos with torch's own optimiser, for methods to be held
against. It computes in doubles, so all rounding is that of fedpriv's single precision."""

from __future__ import annotations

import copy

import numpy as np
import torch

from fedpriv.runtime import prepare
from fedpriv.testing import experiment
from fedpriv.testing.experiments import SMALL

EPOCHS, RATE = 3, 0.2
WORDS = [*SMALL, f"algo.local_epochs={EPOCHS}", f"algo.local_lr={RATE}", "mechanism=none"]
"""Batches hold all records of a silo, so that an epoch is one step."""


def fedpriv_rounds(rounds, *words):
    """The first parameters, those after each round, and the run, which has collected what its silos
    remember."""
    with prepare(experiment(*WORDS, *words)) as prepared:
        start, after = prepared.state.params, []
        for number in range(1, rounds + 1):
            result = prepared.run_round(prepared.queries(number), prepared.state)
            prepared.state = result.state
            after.append(prepared.state.params)
        prepared.arrays(prepared.state)
        return start, after, prepared


def local_change(prepared, silo, start, *, pull=0.0, anchor=None, correction=None):
    """EPOCHS full-batch steps from `start` (d,), every gradient with a proximal term and a
    correction added: the change of the parameters (d,). anchor: that the term pulls to; None:
    `start`."""
    network = copy.deepcopy(prepared.model).double()
    first = torch.from_numpy(start)
    anchor = first if anchor is None else torch.from_numpy(anchor)
    torch.nn.utils.vector_to_parameters(first.clone(), network.parameters())
    optimizer = torch.optim.SGD(network.parameters(), lr=RATE)
    data = prepared.silo_data[silo]
    for _ in range(EPOCHS):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(network(data.x.double()), data.y).backward()
        at = torch.nn.utils.parameters_to_vector(network.parameters()).detach()
        extra = pull * (at - anchor)
        if correction is not None:
            extra = extra + torch.from_numpy(correction)
        pieces = extra.split([p.numel() for p in network.parameters()])
        for parameter, piece in zip(network.parameters(), pieces):
            parameter.grad += piece.view_as(parameter)
        optimizer.step()
    end = torch.nn.utils.parameters_to_vector(network.parameters()).detach()
    return (end - first).numpy()


def close(one, other):
    np.testing.assert_allclose(one, other, rtol=1e-6, atol=1e-7)
