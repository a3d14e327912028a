"""What the peers of `benchmarks.peers.one_user_silos` train, by interpreters that have torch and
nothing of ours."""

from functools import cache

import numpy as np
import torch


class Cnn(torch.nn.Sequential):
    """The MNIST network of Uldp-FL."""

    def __init__(self):
        nn = torch.nn
        super().__init__(
            nn.Conv2d(1, 10, 5),
            nn.MaxPool2d(2),
            nn.ReLU(),
            nn.Conv2d(10, 20, 5),
            nn.Dropout2d(0.5),
            nn.MaxPool2d(2),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(320, 50),
            nn.ReLU(),
            nn.Dropout(0.5),
            nn.Linear(50, 10),
        )

    def loss(self, x, y, is_eval=False):
        self.eval() if is_eval else self.train()
        return torch.nn.functional.cross_entropy(self(x), y)


@cache
def clients(file):
    """Each client's records x and y, from an .npz of x, y and user."""
    stored = np.load(file)
    order = np.argsort(stored["user"], kind="stable")
    starts = np.flatnonzero(np.diff(stored["user"][order], prepend=-1)).tolist()
    x, y = (torch.from_numpy(stored[name][order]) for name in ("x", "y"))
    return [(x[begin:end], y[begin:end]) for begin, end in zip(starts, [*starts[1:], len(order)])]
