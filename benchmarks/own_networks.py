"""Local training of networks that a user brings, beside a plain loop of torch that reuses one
module.

Both train the same users from the same parameters by plain SGD, in alternating turns on one thread.
Times are processor seconds. The plain loop loads the start into its module for every user.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from benchmarks._fresh_process import in_fresh_process
from benchmarks._ratios import alternating_turns, compared
from fedpriv.data.silo import SiloData
from fedpriv.models.tasks import Classification
from fedpriv.training.description import Recipe, Training
from fedpriv.training.silo_training import SiloTraining
from fedpriv.training.users import silo_training
from fedpriv.training.vectors import flatten, load
from fedpriv.util.streams import Streams

TURNS = 5
USERS = {"images": 64, "features": 512}
"""Users by their records; sequences are as few as images."""
RECORDS = 16
IMAGE = (1, 28, 28)
FEATURES = (30,)
CLASSES = 10
WORDS = 50
MARGIN = 80.0


class OwnMlp(nn.Module):
    """30-64-32-10."""

    def __init__(self, function: Callable[[Tensor], Tensor] = functional.relu) -> None:
        super().__init__()
        self.function = function
        self.first = nn.Linear(30, 64)
        self.second = nn.Linear(64, 32)
        self.last = nn.Linear(32, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        h = self.function(self.first(x))
        h = self.function(self.second(h))
        y: Tensor = self.last(h)
        return y


class ResidualMlp(OwnMlp):
    """The same with a sum around another layer."""

    def __init__(self) -> None:
        super().__init__()
        self.around = nn.Linear(64, 64)

    def forward(self, x: Tensor) -> Tensor:
        h = functional.relu(self.first(x))
        h = h + functional.relu(self.around(h))
        h = functional.relu(self.second(h))
        y: Tensor = self.last(h)
        return y


class OwnCnn(nn.Module):
    """Two convolutions of 5 x 5, 10 and 20 channels, each pooled by 2, and two linear layers.

    pool: "max", or means "before" or "after" the activation.
    """

    def __init__(
        self, function: Callable[[Tensor], Tensor] = functional.relu, pool: str = "max"
    ) -> None:
        super().__init__()
        self.function = function
        self.pool = pool
        self.one = nn.Conv2d(1, 10, 5)
        self.two = nn.Conv2d(10, 20, 5)
        self.three = nn.Linear(320, 50)
        self.last = nn.Linear(50, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        for convolution in (self.one, self.two):
            x = convolution(x)
            if self.pool == "max":
                x = self.function(functional.max_pool2d(x, 2))
            elif self.pool == "before":
                x = self.function(functional.avg_pool2d(x, 2))
            else:
                x = functional.avg_pool2d(self.function(x), 2)
        x = self.function(self.three(x.view(-1, 320)))
        y: Tensor = self.last(x)
        return y


class OwnRecurrent(nn.Module):
    """The last state of recurrent layers, and a linear layer."""

    def __init__(self, kind: type[nn.LSTM | nn.GRU], inputs: int, states: int, layers: int) -> None:
        super().__init__()
        widths = [inputs, *[states] * (layers - 1)]
        self.cells = nn.ModuleList(kind(width, states, batch_first=True) for width in widths)
        self.last = nn.Linear(states, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        for cell in self.cells:
            x, _ = cell(x)
        y: Tensor = self.last(x[:, -1])
        return y


class OwnTransformer(nn.Module):
    """Two layers of four heads on words, if `placed` with positions, and the mean over steps."""

    def __init__(self, width: int, steps: int, *, placed: bool = True) -> None:
        super().__init__()
        self.words = nn.Embedding(WORDS, width)
        self.places = nn.Parameter(torch.randn(1, steps, width)) if placed else None
        layer = nn.TransformerEncoderLayer(width, 4, 2 * width, 0.0, batch_first=True)
        self.layers = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.last = nn.Linear(width, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        h = self.words(x)
        if self.places is not None:
            h = h + self.places
        y: Tensor = self.last(self.layers(h).mean(1))
        return y


@dataclass(frozen=True)
class Case:
    """A configuration.

    name: of the network.
    build: makes it.
    shape: of a record.
    epochs: local epochs.
    margin: of the outputs: factor of the last layer's weights.
    words: whether records are words.
    """

    name: str
    build: Callable[[], nn.Module]
    shape: tuple[int, ...]
    epochs: int = 1
    margin: float = 1.0
    words: bool = False


def _listed_cnn() -> nn.Module:
    own = OwnCnn()
    convolutions = own.one, nn.MaxPool2d(2), nn.ReLU(), own.two, nn.MaxPool2d(2), nn.ReLU()
    return nn.Sequential(*convolutions, nn.Flatten(), own.three, nn.ReLU(), own.last)


def _listed_mlp() -> nn.Module:
    own = OwnMlp()
    return nn.Sequential(own.first, nn.ReLU(), own.second, nn.ReLU(), own.last)


CASES = [
    Case("CNN of the list", _listed_cnn, IMAGE),
    Case("CNN, own forward", OwnCnn, IMAGE),
    Case("CNN, tanh", lambda: OwnCnn(torch.tanh), IMAGE),
    Case("CNN, means before ReLU", lambda: OwnCnn(pool="before"), IMAGE),
    Case("CNN, means after ReLU", lambda: OwnCnn(pool="after"), IMAGE),
    Case("CNN, softplus", lambda: OwnCnn(functional.softplus), IMAGE),
    Case("CNN, softplus, 5 epochs", lambda: OwnCnn(functional.softplus), IMAGE, epochs=5),
    Case("MLP of the list", _listed_mlp, FEATURES),
    Case("MLP, own forward", OwnMlp, FEATURES),
    Case("MLP, tanh", lambda: OwnMlp(torch.tanh), FEATURES),
    Case("MLP, GELU", lambda: OwnMlp(functional.gelu), FEATURES),
    Case("MLP, residual", ResidualMlp, FEATURES),
    Case("MLP, softplus", lambda: OwnMlp(functional.softplus), FEATURES),
    Case("MLP, margins of 80", OwnMlp, FEATURES, margin=MARGIN),
    Case("LSTM, 32 units", lambda: OwnRecurrent(nn.LSTM, 8, 32, 1), (20, 8)),
    Case("LSTM, 2 x 64 units", lambda: OwnRecurrent(nn.LSTM, 8, 64, 2), (80, 8)),
    Case("transformer, 32 wide", lambda: OwnTransformer(32, 20), (20,), words=True),
    Case("transformer, 64 wide", lambda: OwnTransformer(64, 20), (20,), words=True),
    Case("GRU, 32 units", lambda: OwnRecurrent(nn.GRU, 8, 32, 1), (20, 8)),
]


def main() -> None:
    """Run every case in its own process, and print a table."""
    print(
        f"users of {RECORDS} records, {USERS['images']} on images and {USERS['features']} on "
        "features, one epoch, one thread; medians of processor milliseconds a user"
    )
    print(
        f"{'network':>24} {'trainer':>12} {'fedpriv':>8} {'torch':>8} {'ratio':>6} {'least':>6} "
        f"{'most':>6}"
    )
    for case in range(len(CASES)):
        r = in_fresh_process(measure, case)
        print(
            f"{CASES[case].name:>24} {r['trainer']:>12} {r['fedpriv']:>8.3f} {r['torch']:>8.3f} "
            f"{r['ratio']:>6.2f} {r['least']:>6.2f} {r['most']:>6.2f}",
            flush=True,
        )


def measure(place: int) -> dict[str, float | str]:
    """Medians of both, and the ratios of single turns."""
    case = CASES[place]
    torch.manual_seed(0)
    model = case.build()
    with torch.no_grad():
        list(model.parameters())[-2].mul_(case.margin)
    data = _records(case)
    users = len(data.users)
    theta = flatten(model)
    recipe = Recipe(case.epochs, None, 0.05)
    work = _work(model, data, theta, recipe)
    times = alternating_turns(
        {
            "fedpriv": lambda: [block.vectors for block in _work(model, data, theta, recipe).run()],
            "torch": lambda: plain_loop(model, data, theta, recipe),
        },
        TURNS,
    )
    both = zip(*([1000 * seconds / users for seconds in own] for own in times.values()))
    numbers = compared([*both])
    names = ("fedpriv", "torch", "ratio", "least", "most")
    return {"trainer": work.trainer.name, **dict(zip(names, numbers))}


def _work(model: nn.Module, data: SiloData, theta: Tensor, recipe: Recipe) -> SiloTraining:
    training = Training(recipe, theta.double().numpy())
    return silo_training(
        training,
        model=model,
        data=data,
        task=Classification(),
        streams=Streams(0),
        round=1,
        party="silo0",
    )


def plain_loop(model: nn.Module, data: SiloData, theta: Tensor, recipe: Recipe) -> list[Tensor]:
    """Every user's change, as one would write it by torch alone; a user has one batch."""
    found = []
    for start, stop in zip(data.starts[:-1].tolist(), data.starts[1:].tolist()):
        load(model, theta)
        optimizer = torch.optim.SGD(model.parameters(), recipe.lr)
        x, y = data.x[start:stop], data.y[start:stop]
        for _ in range(recipe.epochs):
            optimizer.zero_grad()
            functional.cross_entropy(model(x), y).backward()
            optimizer.step()
        found.append(flatten(model) - theta)
    load(model, theta)
    model.zero_grad()
    return found


def _records(case: Case) -> SiloData:
    rng = np.random.default_rng(0)
    few = case.words or len(case.shape) > 1
    users = USERS["images" if few else "features"]
    n = users * RECORDS
    x = torch.from_numpy(rng.standard_normal((n, *case.shape)).astype(np.float32))
    if case.words:
        x = torch.from_numpy(rng.integers(0, WORDS, (n, *case.shape)))
    y = torch.from_numpy(rng.integers(0, CLASSES, n))
    return SiloData(x, y, np.arange(users), np.arange(0, n + 1, RECORDS))


if __name__ == "__main__":
    main()
