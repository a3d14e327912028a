"""pfl-research's side of `benchmarks.peers.one_user_silos`: run by an interpreter that has pfl and
torch.

Reads `records` (an .npz of x, y and user) and settings as JSON in its arguments; then trains one
round for every line it is given, and answers with its processor seconds.
"""

import json
import sys
import time

import torch
from _clients import Cnn, clients
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


class Model(Cnn):
    """With what pfl asks of a model."""

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
    users = {str(user): list(own) for user, own in enumerate(clients(records))}
    names = list(users)
    place = iter(range(10**9))
    data = FederatedDataset.from_slices(users, lambda: names[next(place) % len(names)])
    network = Model()
    model = PyTorchModel(network, torch.optim.SGD, torch.optim.SGD(network.parameters(), 1.0))
    noise = CentrallyAppliedPrivacyMechanism(GaussianMechanism(settings["clip"], settings["noise"]))
    turns = Turns()
    turns.wait()
    FederatedAveraging().run(
        backend=SimulatedBackend(
            training_data=data, val_data=data, postprocessors=[WeightByUser(), noise]
        ),
        model=model,
        model_train_params=NNTrainHyperParams(
            local_num_epochs=settings["epochs"], local_learning_rate=0.01, local_batch_size=64
        ),
        model_eval_params=NNEvalHyperParams(local_batch_size=None),
        algorithm_params=NNAlgorithmParams(
            central_num_iterations=10**6,
            evaluation_frequency=10**9,
            train_cohort_size=len(names),
            val_cohort_size=0,
        ),
        callbacks=[turns],
    )


if __name__ == "__main__":
    main(sys.argv[1], json.loads(sys.argv[2]))
