"""Plain text with speakers: who says what, and that no character of the test records is one of
training."""

import numpy as np
import pytest

from fedpriv.data.shakespeare import CHARACTERS, LENGTH, Shakespeare
from fedpriv.errors import ConfigError, DataError
from fedpriv.util.streams import Streams

LONG = "the quick brown fox jumps over the lazy dog, "


def write(root, text):
    path = root / "shakespeare" / "input.txt"
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    return str(root)


def spoken(records, user):
    return [
        "".join(CHARACTERS[n] for n in (*x, y))
        for x, y, u in zip(records.x, records.y, records.user)
        if u == user
    ]


def test_a_roles_speeches_are_one_text_cut_into_windows(tmp_path):
    speeches = {"ANNA": [LONG * 20, "And again!\n" + LONG * 15], "BEN": [LONG * 25]}
    text = (
        f"BEN:\n{speeches['BEN'][0]}\n\nANNA:\n{speeches['ANNA'][0]}\n\n"
        f"ANNA:\n{speeches['ANNA'][1]}\n\nCAT:\nMeow.\n"
    )
    corpus = Shakespeare(write(tmp_path, text), stride=7).load(Streams(0))
    assert set(corpus.train.user) == {0, 1}  # the cat says too little
    whole = "\n".join(speeches["ANNA"])
    cut = int(0.9 * len(whole))
    expected = [whole[:cut][i : i + LENGTH + 1] for i in range(0, cut - LENGTH, 7)]
    assert spoken(corpus.train, 0) == expected
    assert spoken(corpus.test, 0) == [
        whole[cut:][i : i + LENGTH + 1] for i in range(0, len(whole) - cut - LENGTH, 7)
    ]
    assert len(spoken(corpus.test, 0)) > 0


def test_there_are_87_different_characters_and_leafs_eighty_among_them():
    leaf = "\n !\"&'(),-.0123456789:;>?ABCDEFGHIJKLMNOPQRSTUVWXYZ[]abcdefghijklmnopqrstuvwxyz}"
    assert len(leaf) == 80
    assert len(CHARACTERS) == len(set(CHARACTERS)) == 87
    assert set(leaf) < set(CHARACTERS)


def test_what_cannot_be_read_is_refused(tmp_path):
    with pytest.raises(DataError, match="character '~' is not one of the 87"):
        Shakespeare(write(tmp_path, f"ANNA:\n{LONG * 30}~\n")).load(Streams(0))
    with pytest.raises(DataError, match="cannot be read as plain text"):
        Shakespeare(write(tmp_path, f"ANNÄ:\n{LONG * 30}\n")).load(Streams(0))
    with pytest.raises(DataError, match="no role has enough text"):
        Shakespeare(write(tmp_path, f"ANNA:\n{LONG * 3}\n")).load(Streams(0))
    with pytest.raises(ConfigError, match=r"data\.stride=0"):
        Shakespeare(stride=0)


def test_records_are_characters_that_an_embedding_takes(small_root):
    corpus = Shakespeare(small_root).load(Streams(0))
    assert corpus.train.x.dtype == np.int64
    assert corpus.train.x.max() < len(CHARACTERS)
