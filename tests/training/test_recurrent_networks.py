"""Networks with torch's recurrent layers, under methods that clip the
gradients of records."""

import json
import random

import pytest
import torch
from clipped_problems import one_by_one
from command import success
from torch import nn

from fedpriv.errors import ConfigError
from fedpriv.models.tasks import Classification
from fedpriv.training.clipped import ClippedGradients
from fedpriv.training.record_dropout import record_dropout
from fedpriv.training.vectors import flatten

TASK = Classification()


class Recurrent(nn.Module):
    """A recurrent layer over six steps of three numbers, with dropout on its last state."""

    def __init__(self, layer: nn.Module, width: int = 4) -> None:
        super().__init__()
        self.layer = layer
        self.dropout = nn.Dropout(0.5)
        self.linear = nn.Linear(width, 5)

    def forward(self, x):
        return self.linear(self.dropout(self.layer(x)[0][:, -1]))


LAYERS = {
    "gru": lambda: nn.GRU(3, 4, batch_first=True),
    "lstm": lambda: nn.LSTM(3, 4, batch_first=True),
    "rnn": lambda: nn.RNN(3, 4, batch_first=True),
    "two layers": lambda: nn.GRU(3, 4, num_layers=2, batch_first=True),
}


def records(n=6):
    torch.manual_seed(1)
    return torch.randn(n, 6, 3), torch.arange(n) % 5


@pytest.mark.parametrize("layer", ["rnn", "two layers"])
def test_clipped_gradients_are_summed(layer):
    torch.manual_seed(0)
    model = Recurrent(LAYERS[layer]())
    model.dropout = nn.Identity()
    x, y = records()
    clip = 0.3
    total = ClippedGradients(model, TASK, clip, shape=(6, 3)).sum(flatten(model), x, y)
    rows = one_by_one(model, flatten(model), x, y, TASK)
    factors = (clip / rows.norm(dim=1)).clamp_max(1)
    torch.testing.assert_close(total, factors @ rows)


@pytest.mark.parametrize("layer", LAYERS)
def test_what_a_record_drops_is_an_input(layer):
    torch.manual_seed(0)
    model = Recurrent(LAYERS[layer]())
    dropout = record_dropout(model, (1, 6, 3), torch.float32, torch.device("cpu"))
    assert [shape for _, _, shape in dropout.layers] == [(1, 4)]


def test_dropout_inside_a_recurrent_layer_is_refused():
    """It draws by a record's place in the batch."""
    model = Recurrent(nn.GRU(3, 4, num_layers=2, dropout=0.5, batch_first=True))
    with pytest.raises(ConfigError, match=r"only from nn\.Dropout"):
        record_dropout(model, (1, 6, 3), torch.float32, torch.device("cpu"))


@pytest.mark.parametrize("method", ["minibatch_sgd", "spider", "dp_erm", "cdp_fedavg"])
def test_the_character_network_trains_under_methods_of_records(method, tmp_path):
    rng = random.Random(7)
    for part, n in (("train", 3), ("test", 1)):
        users = {
            f"ROLE {role}": {
                "x": ["".join(rng.choices("abc d", k=80)) for _ in range(n)],
                "y": rng.choices("abc", k=n),
            }
            for role in range(4)
        }
        folder = tmp_path / "shakespeare" / "data" / part
        folder.mkdir(parents=True)
        content = {"users": list(users), "num_samples": [n] * 4, "user_data": users}
        (folder / "roles.json").write_text(json.dumps(content))
    words = ("data=shakespeare", f"data.root={tmp_path}", "model.hidden=3", "model.embedding=2")
    words += ("allocator.n_users=4", "allocator.n_silos=2", "rounds=1", "accountant=rdp")
    steps = ("algo.local_steps=2",) if method == "dp_erm" else ()
    success(f"algo={method}", *words, *steps, cwd=tmp_path)
