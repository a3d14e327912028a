"""Flower's side of `benchmarks.peers.one_user_silos`, by an interpreter that has flwr[simulation],
torch and psutil.

Reads `records` (an .npz of x, y and user) and settings as JSON in its arguments; then trains one
round for every line it is given, and answers with the processor seconds of its processes: its own,
Ray's, and the one that runs clients.
"""

import json
import logging
import os
import sys
from pathlib import Path

import numpy as np
import psutil
import torch
from _clients import Cnn, clients
from flwr.app import ArrayRecord, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.prepared import run_simulation
from flwr.serverapp import ServerApp
from flwr.serverapp.strategy import DifferentialPrivacyServerSideFixedClipping, FedAvg

ROUNDS = 10**6


def client_app(file, settings):
    app = ClientApp()

    @app.train()
    def train(message, context):
        x, y = clients(file)[context.node_config["partition-id"]]
        network = Cnn()
        network.load_state_dict(message.content["arrays"].to_torch_state_dict())
        optimizer = torch.optim.SGD(network.parameters(), 0.01)
        for _ in range(settings["epochs"]):
            for rows in torch.randperm(len(x)).split(64):
                optimizer.zero_grad()
                network.loss(x[rows], y[rows]).backward()
                optimizer.step()
        answer = {
            "arrays": ArrayRecord(network.state_dict()),
            "metrics": MetricRecord({"num-examples": 1}),
        }
        return Message(content=RecordDict(answer), reply_to=message)

    return app


def server_app(settings, users):
    app = ServerApp()

    @app.main()
    def main(grid, context):
        whole = FedAvg(fraction_evaluate=0.0, min_train_nodes=users, min_available_nodes=users)
        private = DifferentialPrivacyServerSideFixedClipping(
            whole, settings["noise"], settings["clip"], users
        )
        start = ArrayRecord(Cnn().state_dict())
        private.start(grid, start, num_rounds=ROUNDS, evaluate_fn=Turns())

    return app


class Turns:
    """Called before the first round and after each: answers, and waits for a line."""

    def __init__(self):
        self.since = 0.0
        self.before = None

    def __call__(self, number, arrays):
        after = np.concatenate([array.ravel() for array in arrays.to_numpy_ndarrays()])
        if number:
            if np.array_equal(after, self.before):
                raise RuntimeError(
                    "a round has left the model as it was: clients have failed, see above"
                )
            print("seconds", spent() - self.since, flush=True)
        if not sys.stdin.readline():
            sys.exit()
        self.since = spent()
        self.before = after


def spent():
    """Processor seconds of this process and of all below it."""
    this = psutil.Process()
    times = [process.cpu_times() for process in (this, *this.children(recursive=True))]
    return sum(own.user + own.system for own in times)


def main(file, settings):
    torch.set_num_threads(1)
    logging.getLogger("flwr").setLevel(logging.ERROR)  # else a line for each client
    os.environ["PYTHONPATH"] = str(
        Path(__file__).parent
    )  # for Ray's process, which imports `_clients`
    settings = json.loads(settings)
    users = len(clients(file))
    alone = {
        "init_args": {"num_cpus": 1, "include_dashboard": False},
        "client_resources": {"num_cpus": 1},
    }
    run_simulation(
        server_app(settings, users), client_app(file, settings), users, backend_config=alone
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
