"""A recurrent network that reads characters and predicts the next one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from fedpriv.errors import require, require_positive
from fedpriv.models import Model, linear_size

if TYPE_CHECKING:
    from torch import nn


@dataclass(frozen=True)
class CharGru(Model):
    """An embedding, a gated recurrent unit (Cho et al., EMNLP 2014) and a linear layer on its last
    state, raw logits.

    A record is a text: integers below the number of outputs, one per character.

    embedding: width of a character's vector.
    hidden: width of the recurrent state.

    With `embedding=100, hidden=128` and 87 characters it is the Shakespeare network of Jeon et al.
    (SecureD-FL, 2021), with 108243 parameters.
    """

    embedding: int
    hidden: int

    def __post_init__(self) -> None:
        require_positive("model", self, "embedding", "hidden")

    reads_text = True

    def build(self, shape: tuple[int, ...], outputs: int) -> nn.Module:
        from fedpriv.models.character_network import CharacterNetwork

        self._require_text(shape)
        return CharacterNetwork(outputs, self.embedding, self.hidden)

    def size(self, shape: tuple[int, ...], outputs: int) -> int:
        self._require_text(shape)
        recurrent = 3 * self.hidden * (self.embedding + self.hidden + 2)
        return outputs * self.embedding + recurrent + linear_size(self.hidden, outputs)

    def _require_text(self, shape: tuple[int, ...]) -> None:
        allowed = f"texts, records of a single axis, not of shape {shape}"
        require(len(shape) == 1, "model", "char_gru", allowed)
