"""Who may open a line to a coordinator: a site whose certificate it holds, and nobody else."""

import threading

import pytest

pytest.importorskip("grpc")

import grpc

from fedpriv.crypto.certificates import new_certificate
from fedpriv.engines.site_lines import METHOD, SERVICE, Certificates, Switchboard, dial
from sites.study import free_port

NAME = "silo0"


@pytest.fixture
def files(tmp_path):
    """Certificates that everybody holds, and one that nobody else does."""
    for name in ("coordinator", NAME):
        new_certificate(name, tmp_path / "keys", tmp_path / "held")
    for name in ("stranger", NAME):
        new_certificate(name, tmp_path / "other_keys", tmp_path / "own")
    return tmp_path


@pytest.fixture
def port(files):
    number = free_port()
    certificates = Certificates("coordinator", files / "keys" / "coordinator.tls", files / "held")
    board = Switchboard(f"localhost:{number}", (NAME,), certificates)
    yield number, board
    board.close()


@pytest.mark.parametrize("own", [None, "stranger", NAME])
def test_an_unknown_node_has_no_line_and_a_site_has_one_afterwards(files, port, own):
    """Without a certificate, with one of its own, and with one of its own in a site's name."""
    number, board = port
    pair = (None, None)
    if own:
        paths = files / "other_keys" / f"{own}.tls", files / "own" / f"{own}.pem"
        pair = tuple(path.read_bytes() for path in paths)
    root = (files / "held" / "coordinator.pem").read_bytes()
    credentials = grpc.ssl_channel_credentials(root, *pair)
    options = [("grpc.ssl_target_name_override", "coordinator")]
    with grpc.secure_channel(f"localhost:{number}", credentials, options) as channel:
        frames = channel.stream_stream(f"/{SERVICE}/{METHOD}")(iter([b""]), timeout=5)
        with pytest.raises(grpc.RpcError):
            next(frames)
    assert board.lines == {}

    ended = threading.Event()
    site = Certificates(NAME, files / "keys" / f"{NAME}.tls", files / "held")
    always = {"computing": lambda: True, "say": str, "until": ended}
    line = threading.Thread(
        target=dial,
        args=(f"localhost:{number}", "coordinator", site, bytes.upper),
        kwargs=always,
    )
    line.start()
    assert board.wait(frozenset({NAME}), 20) == frozenset()
    assert board.lines[NAME].ask(b"ask").result(20) == b"ASK"
    ended.set()
    line.join()
