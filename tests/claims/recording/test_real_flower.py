"""The recorder and the mod in simulations of an installed Flower; skipped without one.

Flower needs packages that fedpriv does not, so it has an environment of its own:
`pip install 'flwr[simulation]' pytest`, then `pytest tests/claims/recording`.
"""

import numpy as np
import pytest

pytest.importorskip("flwr")

from flwr.app import Array, ArrayRecord, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.clientapp.mod import LocalDpMod
from flwr.serverapp import ServerApp
from flwr.serverapp.strategy import DifferentialPrivacyServerSideFixedClipping, FedAvg
from flwr.simulation import run_simulation

import fedpriv
from fedpriv.claims.recording.flower_mod import BudgetMod
from fedpriv.claims.recording.flower_updates import FlowerStep

CLIENTS, ROUNDS = 3, 3


class Counting(FedAvg):
    """Counts the replies without an error of each round."""

    def __init__(self):
        super().__init__(
            fraction_evaluate=0.0, min_available_nodes=CLIENTS, min_train_nodes=CLIENTS
        )
        self.answered = []

    def aggregate_train(self, server_round, replies):
        replies = list(replies)
        self.answered.append(sum(not reply.has_error() for reply in replies))
        return super().aggregate_train(server_round, replies)


def simulate(strategy, mods=()):
    """The recording of a server whose clients add one to every weight."""
    client, server, recordings = ClientApp(mods=list(mods)), ServerApp(), []

    @client.train()
    def train(message, context):
        [arrays] = message.content.array_records.values()
        moved = ArrayRecord({name: Array(part.numpy() + 1) for name, part in arrays.items()})
        metrics = MetricRecord({"num-examples": 10 + 10 * context.node_config["partition-id"]})
        return Message(RecordDict({"arrays": moved, "metrics": metrics}), reply_to=message)

    @server.main()
    def main(grid, context):
        weights = {"weight": np.zeros(40, np.float32), "bias": np.zeros(2, np.float32)}
        begin = ArrayRecord({name: Array(part) for name, part in weights.items()})
        with fedpriv.record() as recording:
            strategy.start(grid=grid, initial_arrays=begin, num_rounds=ROUNDS)
        recordings.append(recording)

    run_simulation(
        server_app=server,
        client_app=client,
        num_supernodes=CLIENTS,
        backend_config={"client_resources": {"num_cpus": 1}},
    )
    return recordings[0]


def test_server_side_fixed_clipping():
    base = Counting()
    recording = simulate(DifferentialPrivacyServerSideFixedClipping(base, 1.2, 2.0, CLIENTS))
    assert base.answered == [CLIENTS] * ROUNDS
    assert dict(recording.steps) == {FlowerStep(True, 2.0, 1, 0.5, 1.2 * 2.0 / CLIENTS): ROUNDS}


def test_clients_stop_at_their_budget():
    """Epsilon 30 lasts for one message of `LocalDpMod(1, 1, 8, 1e-5)`, and not for two."""
    strategy = Counting()
    simulate(strategy, [BudgetMod(epsilon=30.0, delta=1e-5), LocalDpMod(1.0, 1.0, 8.0, 1e-5)])
    assert strategy.answered == [CLIENTS, 0, 0]
