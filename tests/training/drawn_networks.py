"""Random networks with a forward pass of their own, which a trace describes."""

import random

import torch
from torch import nn
from torch.nn import functional

FUNCTIONS = {
    "relu": functional.relu,
    "tanh": torch.tanh,
    "sigmoid": torch.sigmoid,
    "gelu": functional.gelu,
    "silu": functional.silu,
}
SIDE = 10


class Own(nn.Module):
    """Runs a program: a list of steps, each with what it reads by place; 0 is the records.

    Layers are registered in an order of their own, so parameters are not in that of the calls.
    """

    def __init__(self, program, layers):
        super().__init__()
        self.program = program
        for name in sorted(layers, key=lambda name: name[::-1]):
            self.add_module(name, layers[name])

    def forward(self, x):
        values = [x]
        for step, name, *reads in self.program:
            h = values[reads[0]]
            match step:
                case "layer":
                    values.append(getattr(self, name)(h))
                case "function":
                    values.append(FUNCTIONS[name](h))
                case "add":
                    values.append(h + values[reads[1]])
                case "mean":
                    values.append(functional.avg_pool2d(h, 2))
                case "most":
                    values.append(functional.max_pool2d(h, 2))
                case "recurrent":
                    values.append(getattr(self, name)(h)[0])
                case "last":
                    values.append(h[:, -1] if name == "slice" else h.mean(1))
                case "flat":
                    values.append(h.view(h.size(0), -1) if name == "view" else torch.flatten(h, 1))
        return values[-1]


class _Author:
    """Writes a random program."""

    def __init__(self, seed):
        self.rng = random.Random(seed)
        self.program = []
        self.layers = {}
        self.shapes = []

    def write(self):
        kind = self.rng.choice(["images", "features", "sequences"])
        if kind == "sequences":
            return self.write_sequences()
        images = kind == "images"
        self.shapes = [(2, SIDE, SIDE) if images else (6,)]
        for _ in range(self.rng.randint(1, 5)):
            (self.on_images if images else self.on_features)()
        if images:
            shape = self.shapes[-1]
            flat = self.rng.choice(["view", "flatten"])
            self.step("flat", flat, (shape[0] * shape[1] * shape[2],))
        for _ in range(self.rng.randint(0, 4)):
            self.on_features()
        self.layer(nn.Linear(self.shapes[-1][0], 3), (3,))
        return Own(self.program, self.layers), self.shapes[0]

    def write_sequences(self):
        self.shapes = [(4, 5)]
        for _ in range(self.rng.randint(1, 4)):
            self.on_sequences()
        self.step("last", self.rng.choice(["slice", "mean"]), self.shapes[-1][1:])
        self.layer(nn.Linear(self.shapes[-1][0], 3), (3,))
        return Own(self.program, self.layers), self.shapes[0]

    def on_sequences(self):
        steps, width = self.shapes[-1]
        match self.rng.choice(["linear", "lstm", "gru", "function", "add", "norm"]):
            case "linear":
                outputs = self.rng.choice([width, self.rng.randint(1, 20)])
                self.layer(nn.Linear(width, outputs), (steps, outputs))
            case ("lstm" | "gru") as kind:
                outputs = self.rng.choice([width, self.rng.randint(1, 20)])
                cell = {"lstm": nn.LSTM, "gru": nn.GRU}[kind]
                name = f"part{len(self.layers)}"
                biased = self.rng.random() < 0.8
                self.layers[name] = cell(width, outputs, bias=biased, batch_first=True)
                self.step("recurrent", name, (steps, outputs))
            case "function":
                self.function()
            case "add":
                self.add()
            case "norm" if width > 4:
                self.layer(nn.LayerNorm(width), (steps, width))

    def step(self, step, name, shape, *others):
        self.program.append((step, name, len(self.shapes) - 1, *others))
        self.shapes.append(shape)

    def layer(self, layer, shape):
        name = f"part{len(self.layers)}"
        self.layers[name] = layer
        self.step("layer", name, shape)

    def function(self):
        name = self.rng.choice(list(FUNCTIONS))
        own = {"relu": nn.ReLU, "tanh": nn.Tanh, "gelu": nn.GELU, "silu": nn.SiLU}.get(name)
        if own is not None and self.rng.random() < 0.3:
            self.layer(own(), self.shapes[-1])
        else:
            self.step("function", name, self.shapes[-1])

    def add(self):
        same = [place for place, own in enumerate(self.shapes) if own == self.shapes[-1]]
        self.step("add", "", self.shapes[-1], self.rng.choice(same))

    def on_features(self):
        [width] = self.shapes[-1]
        match self.rng.choice(["linear", "linear", "function", "add", "norm"]):
            case "linear":
                outputs = self.rng.choice([width, self.rng.randint(1, 20)])
                self.layer(nn.Linear(width, outputs, bias=self.rng.random() < 0.8), (outputs,))
            case "function":
                self.function()
            case "add":
                self.add()
            case "norm" if width > 4:
                self.layer(nn.GroupNorm(1, width), (width,))

    def on_images(self):
        channels, *sides = self.shapes[-1]
        match self.rng.choice(["convolution", "convolution", "function", "add", "mean", "most"]):
            case "convolution":
                outputs = self.rng.choice([channels, self.rng.randint(1, 5)])
                stride, zeros = self.rng.choice([(1, 0), (1, 1), (2, 1)])
                side = (sides[0] + 2 * zeros - 3) // stride + 1
                if side > 1:
                    layer = nn.Conv2d(channels, outputs, 3, stride, zeros)
                    self.layer(layer, (outputs, side, side))
            case "function":
                self.function()
            case "add":
                self.add()
            case ("mean" | "most") as step if sides[0] >= 4:
                self.step(step, "", (channels, sides[0] // 2, sides[1] // 2))


def traceable(seed):
    """A network, and the shape of its records."""
    torch.manual_seed(seed)
    return _Author(seed).write()
