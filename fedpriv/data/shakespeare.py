"""Shakespeare's plays by speaking role: 80 characters of what somebody says, and the next one to
predict."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from fedpriv.data.base import Corpus, DataSet, Records
from fedpriv.data.files import RemoteFile, locate
from fedpriv.data.leaf import LeafFolder
from fedpriv.errors import DataError, require
from fedpriv.models.tasks import Classification, Task
from fedpriv.util.streams import Streams

NAME = "shakespeare"
LENGTH = 80
CHARACTERS = (
    "\n" + "".join(chr(code) for code in range(32, 123) if chr(code) not in "#@\\^_`") + "}"
)
"""A character's number is its place here. LEAF's eighty are among them."""
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

    Reads LEAF's files (Caldas et al., 2018), shakespeare/data/train/*.json and
    shakespeare/data/test/*.json below `root`, whose records are used as they are; else the text
    shakespeare/input.txt, speeches with the speaker's name and a colon before them and an empty
    line after. Of a text, the first nine tenths of what a role says train and the rest tests, so
    that no character is in both; a record begins at every `stride`-th character. Roles without a
    whole training record are left out. Jeon et al. (SecureD-FL, 2021), Table I, have 715 users,
    37,986 and 5,464 records.
    """

    stride: int = 25

    shape = (LENGTH,)
    outputs = len(CHARACTERS)
    natural_users = True
    text = True

    def __post_init__(self) -> None:
        require(self.stride >= 1, "data.stride", self.stride, "a positive number of characters")

    @property
    def task(self) -> Task:
        return Classification()

    def load(self, streams: Streams) -> Corpus:
        folder = LeafFolder(NAME, self.root)
        roles = _from_leaf(folder) if folder.exists else self._from_text()
        kept = [records for _, records in sorted(roles.items()) if len(records[0][1])]
        source = folder.path if folder.exists else locate(FILE, self.root)
        if not kept or not any(len(test[1]) for _, test in kept):
            raise DataError(
                f"{source}: no role says enough for a training record, or none for a test record"
            )
        return Corpus(*(_records([records[part] for records in kept]) for part in (0, 1)))

    def _from_text(self) -> dict[str, tuple[Part, Part]]:
        path = locate(FILE, self.root)
        try:
            text = path.read_text(encoding="ascii")
        except (OSError, UnicodeDecodeError) as error:
            raise DataError(f"{path}: cannot be read as plain text: {error}") from error
        roles: dict[str, list[str]] = {}
        for speech in text.split("\n\n"):
            head, _, said = speech.strip("\n").partition("\n")
            if head.endswith(":") and said:
                roles.setdefault(head[:-1], []).append(said)
        found = {}
        for name, speeches in roles.items():
            numbers = _numbers("\n".join(speeches), str(path))
            cut = int(TRAINS * len(numbers))
            found[name] = self._windows(numbers[:cut]), self._windows(numbers[cut:])
        return found

    def _windows(self, numbers: np.ndarray) -> Part:
        """Records of a text, one at every `stride`-th character that has `LENGTH` more after it."""
        starts = np.arange(0, len(numbers) - LENGTH, self.stride)
        return numbers[starts[:, None] + np.arange(LENGTH)], numbers[starts + LENGTH]


Part = tuple[np.ndarray, np.ndarray]
"""Features (n, 80) and labels (n,) of one user, int64."""


def _from_leaf(folder: LeafFolder) -> dict[str, tuple[Part, Part]]:
    train, test = (
        {name: _part(folder, name, xy) for name, xy in folder.read(p).items()}
        for p in ("train", "test")
    )
    nothing = np.empty((0, LENGTH), np.int64), np.empty(0, np.int64)
    return {name: (part, test.get(name, nothing)) for name, part in train.items()}


def _part(folder: LeafFolder, name: str, records: tuple[list[str], list[str]]) -> Part:
    x, y = records
    if not all(isinstance(text, str) and len(text) == LENGTH for text in x) or not all(
        len(text) == 1 for text in y
    ):
        raise DataError(
            f"{folder.path}: user {name} has records that are not {LENGTH} characters and one"
        )
    return _numbers("".join(x), str(folder.path)).reshape(-1, LENGTH), _numbers(
        "".join(y), str(folder.path)
    )


def _numbers(text: str, source: str) -> np.ndarray:
    """Places in `CHARACTERS`, (n,) int64."""
    unknown = sorted(set(text) - set(CHARACTERS))
    if unknown:
        raise DataError(
            f"{source}: character {unknown[0]!r} is not one of the {len(CHARACTERS)} that are known"
        )
    table = np.zeros(128, dtype=np.int64)
    table[[ord(character) for character in CHARACTERS]] = np.arange(len(CHARACTERS))
    return np.asarray(table[np.frombuffer(text.encode("ascii"), dtype=np.uint8)])


def _records(parts: Iterable[Part]) -> Records:
    x, y, user = zip(*((x, y, np.full(len(y), number)) for number, (x, y) in enumerate(parts)))
    return Records(np.concatenate(x), np.concatenate(y), user=np.concatenate(user))
