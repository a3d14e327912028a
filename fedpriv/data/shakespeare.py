"""Shakespeare's plays by speaking role: a record is 80 characters of a role's text, its label the
next character."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from fedpriv.data.base import Corpus, DataSet, Records, pool
from fedpriv.data.files import RemoteFile, locate, warn_if_partial
from fedpriv.data.leaf import LeafFolder, Part
from fedpriv.errors import DataError, require
from fedpriv.models.tasks import Classification
from fedpriv.util.streams import Streams
from fedpriv.util.untrusted_files import RECORD_BYTES, read_bytes

NAME = "shakespeare"
LENGTH = 80
CHARACTERS = (
    "\n" + "".join(chr(code) for code in range(32, 123) if chr(code) not in "#@\\^_`") + "}"
)
"""A character's number is its index here. LEAF's eighty characters are among them."""
TRAINS = 0.9

FILE = RemoteFile(
    places=("shakespeare/input.txt",),
    urls=(
        "https://raw.githubusercontent.com/karpathy/char-rnn/master/data/tinyshakespeare/input.txt",
    ),
)


@dataclass(frozen=True)
class Shakespeare(DataSet):
    """Next characters in the speeches of Shakespeare's roles; users are the roles.

    If LEAF's files (Caldas et al., 2018) exist below `root`, shakespeare/data/train/*.json and
    shakespeare/data/test/*.json, their records are used unchanged. Otherwise reads the text
    shakespeare/input.txt: each speech follows a line with the speaker's name and a colon, and an
    empty line ends it. The first nine tenths of a role's text train and the rest tests, so no
    character is in both parts. Roles without a whole training record are left out. Jeon et al.
    (SecureD-FL, 2021), Table I, have 715 users, 37,986 and 5,464 records.

    stride: characters between the starts of two records of shakespeare/input.txt.
    """

    stride: int = 25

    shape = (LENGTH,)
    outputs = len(CHARACTERS)
    task = Classification()
    natural_users = True
    text = True

    def __post_init__(self) -> None:
        require(self.stride >= 1, "data.stride", self.stride, "a positive number of characters")

    def load(self, streams: Streams) -> Corpus:
        folder = LeafFolder(NAME, self.root)
        if folder.exists:
            source = folder.path
            roles = folder.read_users(_characters)
        else:
            source = locate(FILE, self.root)
            try:
                text = read_bytes(source, RECORD_BYTES).decode("ascii")
                warn_if_partial(source, len(text))
                roles = self._from_text(text)
            except (OSError, ValueError) as error:
                raise DataError(f"{source}: cannot be read as plain text: {error}") from error
        if not any(len(y) for _, (_, y) in roles):
            raise DataError(
                f"{source}: no role has enough text for a training record, or none for a test "
                "record"
            )
        pooled = (pool(part) for part in zip(*roles))
        return Corpus(*(Records(x, y, user=user) for x, y, user in pooled))

    def _from_text(self, text: str) -> list[tuple[Part, Part]]:
        """Training and test records of every role with training records, sorted by name."""
        roles: dict[str, list[str]] = {}
        for speech in text.split("\n\n"):
            head, _, said = speech.strip("\n").partition("\n")
            if head and not head.endswith(":"):
                raise ValueError(
                    f"a speech begins with {head!r:.40} and not with a name and a colon"
                )
            if head and said:
                roles.setdefault(head[:-1], []).append(said)
        found = []
        for _, speeches in sorted(roles.items()):
            numbers = _numbers("\n".join(speeches))
            cut = int(TRAINS * len(numbers))
            found.append((self._windows(numbers[:cut]), self._windows(numbers[cut:])))
        return [parts for parts in found if len(parts[0][1])]

    def _windows(self, numbers: np.ndarray) -> Part:
        """Records of a text: one starts at every `stride`-th character with `LENGTH` characters
        after it."""
        starts = np.arange(0, len(numbers) - LENGTH, self.stride)
        return numbers[starts[:, None] + np.arange(LENGTH)], numbers[starts + LENGTH]


def _characters(x: list[Any], y: list[Any]) -> Part:
    """One role's records in LEAF's files: texts (n, 80) and labels (n,), int64."""
    fits = all(isinstance(text, str) and len(text) == LENGTH for text in x)
    if not fits or not all(isinstance(text, str) and len(text) == 1 for text in y):
        raise ValueError(f"expected texts of {LENGTH} characters, with labels of one")
    return _numbers("".join(x)).reshape(-1, LENGTH), _numbers("".join(y))


def _numbers(text: str) -> np.ndarray:
    """Index of each character in `CHARACTERS`, (n,) int64."""
    unknown = sorted(set(text) - set(CHARACTERS))
    if unknown:
        raise ValueError(f"character {unknown[0]!r} is not one of the {len(CHARACTERS)} known ones")
    table = np.zeros(128, dtype=np.int64)
    table[[ord(character) for character in CHARACTERS]] = np.arange(len(CHARACTERS))
    return np.asarray(table[np.frombuffer(text.encode("ascii"), dtype=np.uint8)])
