"""What travels between a party's process and the coordinator."""

import contextlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedpriv.engines.bundles import LENGTH, MARK, bundled, unbundled
from fedpriv.parties import messages
from fedpriv.parties.messages import MessageError, encode

MAIL = {"silo0": np.arange(3.0), "server": (b"x", None), "": {}}


def frame(*parts):
    return MARK + b"".join(len(part).to_bytes(LENGTH, "little") + part for part in parts)


def test_mail_comes_back_as_it_was():
    for mail in (MAIL, {}):
        back = unbundled(bundled(mail), most=len(mail))
        assert list(back) == list(mail)
        assert encode(back) == encode(mail)


def test_no_message_begins_like_a_bundle():
    for message in (None, True, 1, 1.0, "m", b"m", ("m",), ["m"], {"m": 1}, np.zeros(1)):
        assert not encode(message).startswith(MARK)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        encode(None),
        frame(encode("a")),
        frame(encode(("a",))),
        frame(encode(["a", 1])),
        frame(encode((1, 1))),
        frame(encode(("a", 1)), encode(("a", 2))),
        frame(b"\xff"),
        frame(b""),
        frame(encode(("a", 1)))[:-1],
        frame(encode(("a", 1))) + b"x",
        MARK + (2**62).to_bytes(LENGTH, "little"),
        MARK + (2**64 - 1).to_bytes(LENGTH, "little") + encode("a"),
    ],
)
def test_what_is_no_bundle_is_refused(data):
    with pytest.raises(MessageError):
        unbundled(data)


@given(st.binary(max_size=40))
def test_any_bytes_are_a_bundle_or_one_error(data):
    with contextlib.suppress(MessageError):
        assert bundled(unbundled(MARK + data)) == MARK + data


def test_more_messages_than_parties_are_refused():
    with pytest.raises(MessageError, match="more than 2 names"):
        unbundled(bundled(MAIL), most=2)


def test_limits_hold_for_each_message_and_not_for_all_together(monkeypatch):
    mail = {f"silo{i}": bytes(100) for i in range(50)}
    monkeypatch.setattr(messages, "LIMIT", 200)
    assert unbundled(bundled(mail)) == mail
    with pytest.raises(MessageError, match="a length of 300"):
        bundled(mail | {"silo7": bytes(300)})
    with pytest.raises(MessageError, match="more than 200 bytes"):
        unbundled(frame(bytes(300)))
