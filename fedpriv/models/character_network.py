"""The torch module of `char_gru`."""

from __future__ import annotations

from torch import Tensor, nn


class CharacterNetwork(nn.Module):
    """Maps characters (b, length) int64 to outputs (b, characters)."""

    def __init__(self, characters: int, embedding: int, hidden: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(characters, embedding)
        self.gru = nn.GRU(embedding, hidden, batch_first=True)
        self.linear = nn.Linear(hidden, characters)

    def forward(self, x: Tensor) -> Tensor:
        states, _ = self.gru(self.embedding(x))
        outputs: Tensor = self.linear(states[:, -1])
        return outputs
