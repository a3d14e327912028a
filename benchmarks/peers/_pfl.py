"""pfl-research's side of `benchmarks.peers.pfl_research`: run by an interpreter that has pfl and torch.

Reads `records` (an .npz of x, y and user) and settings as JSON in its arguments; then trains one round for every line
it is given, and answers with its processor seconds.
"""

import json
import sys
import time

import numpy as np
import torch
from pfl.aggregate.simulate import SimulatedBackend
from pfl.aggregate.weighting import WeightByUser
from pfl.algorithm import NNAlgorithmParams
from pfl.algorithm.federated_averaging import FederatedAveraging
from pfl.callback.base import TrainingProcessCallback
from pfl.data import FederatedDataset
from pfl.hyperparam import NNEvalHyperParams, NNTrainHyperParams
from pfl.metrics import Metrics
from pfl.model.pytorch import PyTorchModel
from pfl.privacy import CentrallyAppliedPrivacyMechanism, GaussianMechanism


class Cnn(torch.nn.Sequential):
    """The MNIST network of Uldp-FL, with what pfl asks of a model."""

    def __init__(self):
        nn = torch.nn
        super().__init__(
            nn.Conv2d(1, 10, 5), nn.MaxPool2d(2), nn.ReLU(),
            nn.Conv2d(10, 20, 5), nn.Dropout2d(0.5), nn.MaxPool2d(2), nn.ReLU(),
            nn.Flatten(), nn.Linear(320, 50), nn.ReLU(), nn.Dropout(0.5), nn.Linear(50, 10),
        )  # fmt: skip

    def loss(self, x, y, is_eval=False):
        self.eval() if is_eval else self.train()
        return torch.nn.functional.cross_entropy(self(x), y)

    def metrics(self, x, y):
        return {}


class Turns(TrainingProcessCallback):
    """Waits for a line before each round, and answers after it."""

    def after_central_iteration(self, aggregate_metrics, model, *, central_iteration):
        print("seconds", time.process_time() - self.since, flush=True)
        return not self.wait(), Metrics()

    def wait(self):
        line = sys.stdin.readline()
        self.since = time.process_time()
        return bool(line)


def main(records, settings):
    torch.set_num_threads(1)
    told = np.load(records)
    x, y, user = torch.from_numpy(told["x"]), torch.from_numpy(told["y"]), told["user"]
    users = {str(u): [x[user == u], y[user == u]] for u in np.unique(user)}
    names = list(users)
    place = iter(range(10**9))
    data = FederatedDataset.from_slices(users, lambda: names[next(place) % len(names)])
    network = Cnn()
    model = PyTorchModel(network, torch.optim.SGD, torch.optim.SGD(network.parameters(), 1.0))
    noise = CentrallyAppliedPrivacyMechanism(GaussianMechanism(settings["clip"], settings["noise"]))
    turns = Turns()
    turns.wait()
    FederatedAveraging().run(
        backend=SimulatedBackend(training_data=data, val_data=data, postprocessors=[WeightByUser(), noise]),
        model=model,
        model_train_params=NNTrainHyperParams(
            local_num_epochs=settings["epochs"], local_learning_rate=0.01, local_batch_size=64
        ),
        model_eval_params=NNEvalHyperParams(local_batch_size=None),
        algorithm_params=NNAlgorithmParams(
            central_num_iterations=10**6, evaluation_frequency=10**9, train_cohort_size=len(names), val_cohort_size=0
        ),
        callbacks=[turns],
    )


if __name__ == "__main__":
    main(sys.argv[1], json.loads(sys.argv[2]))
