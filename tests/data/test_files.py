"""Finding and downloading files, against a server on this machine."""

import hashlib
import os
import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from refusals import refused

from fedpriv.data import adult, files, heart_disease, tcga_brca
from fedpriv.data.files import RemoteFile, cache_dir, locate
from fedpriv.errors import ConfigError, DataError

CONTENT = bytes(range(256)) * 1000
SHA = f"sha256:{hashlib.sha256(CONTENT).hexdigest()}"
MD5 = f"md5:{hashlib.md5(CONTENT).hexdigest()}"


class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        if self.path == "/missing":
            self.send_error(404)
            return
        self.send_response(200)
        if self.path != "/unsized":
            self.send_header("Content-Length", str(0 if self.path == "/nothing" else len(CONTENT)))
        self.end_headers()
        if self.path == "/cut":
            self.wfile.write(CONTENT[:70_000])
            self.wfile.flush()
            self.connection.shutdown(socket.SHUT_RDWR)
        elif self.path == "/stall":
            self.wfile.write(CONTENT[:70_000])
            self.wfile.flush()
            self.server.leave.wait(10)
        elif self.path != "/nothing":
            self.wfile.write(CONTENT)

    def log_message(self, *args):
        pass


@pytest.fixture(scope="module")
def address():
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.leave = threading.Event()
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.leave.set()
    server.shutdown()


@pytest.fixture(autouse=True)
def _direct(monkeypatch, no_cache):
    monkeypatch.setenv("no_proxy", "127.0.0.1")


def remote(*urls, digest=SHA):
    return RemoteFile(("file.bin", "set/file.bin"), urls, digest)


def left_in(folder):
    return [path for path in folder.rglob("*") if path.is_file()]


@pytest.mark.parametrize("digest", [SHA, MD5, None])
@pytest.mark.parametrize("page", ["good", "unsized"])
def test_a_good_file_arrives_whole_and_is_not_fetched_again(address, no_cache, digest, page):
    path = locate(remote(f"{address}/{page}", digest=digest), None)
    assert path == no_cache / "set" / "file.bin" == cache_dir() / "set" / "file.bin"
    assert path.read_bytes() == CONTENT
    assert left_in(no_cache) == [path]
    assert os.stat(path).st_mode & 0o444 == 0o444
    assert locate(remote("http://127.0.0.1:9/never asked"), None) == path


@pytest.mark.parametrize(
    ("page", "digest", "reason"),
    [
        ("good", "sha256:" + "0" * 64, "wrong checksum"),
        ("good", "md5:" + "0" * 32, "wrong checksum: md5 is"),
        ("cut", SHA, "the connection ended after 70000 of 256000 bytes"),
        ("cut", None, "the connection ended after 70000 of 256000 bytes"),
        ("nothing", None, "the answer is empty"),
        ("missing", SHA, "HTTP Error 404"),
        ("stall", SHA, "timed out"),
    ],
)
def test_a_bad_download_leaves_nothing_and_says_what_to_do(
    address, no_cache, monkeypatch, page, digest, reason
):
    monkeypatch.setattr(files, "TIMEOUT", 0.5)
    file = remote(f"{address}/{page}", digest=digest)
    parts = "file.bin", f"{address}/{page}", no_cache / "set" / "file.bin", "data.root"
    refused(lambda: locate(file, None), reason, *parts)
    assert left_in(no_cache) == []


def test_the_second_address_serves_when_the_first_fails(address, no_cache):
    assert locate(remote(f"{address}/cut", f"{address}/good"), None).read_bytes() == CONTENT
    with pytest.raises(DataError, match=r"missing .*nor from .*/cut"):
        locate(RemoteFile(("other",), (f"{address}/missing", f"{address}/cut")), None)


def test_many_processes_may_download_at_once(address, no_cache):
    with ThreadPoolExecutor(8) as pool:
        paths = set(pool.map(lambda _: locate(remote(f"{address}/good"), None), range(8)))
    assert [path.read_bytes() for path in paths] == [CONTENT]
    assert left_in(no_cache) == list(paths)


def test_the_order_of_folders(tmp_path, monkeypatch, no_cache):
    for name in ("root", "variable", "cache/fedpriv"):
        (tmp_path / name).mkdir(parents=True, exist_ok=True)
        (tmp_path / name / "file.bin").write_text(name)
    file = remote("http://127.0.0.1:9/never asked")
    assert locate(file, None).read_text() == "cache/fedpriv"
    monkeypatch.setenv("FEDPRIV_DATA", str(tmp_path / "variable"))
    assert locate(file, None).read_text() == "variable"
    assert locate(file, str(tmp_path / "root")).read_text() == "root"


@pytest.mark.parametrize("named_by", ["root", "variable"])
def test_a_named_folder_is_never_downloaded_into(
    address, tmp_path, monkeypatch, no_cache, named_by
):
    folder = tmp_path / "mine"
    folder.mkdir()
    if named_by == "variable":
        monkeypatch.setenv("FEDPRIV_DATA", str(folder))
    file, root = remote(f"{address}/good"), str(folder) if named_by == "root" else None
    start = f"data.root={folder}: no file.bin or set/file.bin"
    refused(lambda: locate(file, root), start=start)
    assert left_in(folder) == left_in(tmp_path) == []


def test_a_folder_that_does_not_exist(tmp_path):
    with pytest.raises(ConfigError, match=r"data\.root=.*nowhere: an existing folder"):
        locate(remote("http://127.0.0.1:9/"), str(tmp_path / "nowhere"))


OFFICIAL = [*adult.FILES, *list(heart_disease.FILES.values())[1:], *tcga_brca.FILES]


@pytest.mark.parametrize("file", OFFICIAL, ids=lambda file: file.places[0])
def test_checksums_are_of_the_official_files(file, real_root):
    """Copies lose empty lines at the end; that of Cleveland also has six `?` as 0.0."""
    text = (Path(real_root) / file.places[-1]).read_bytes().rstrip(b"\n")
    found = [hashlib.sha256(text + end).hexdigest() for end in (b"", b"\n", b"\n\n")]
    assert file.digest in [f"sha256:{one}" for one in found]


def test_both_official_layouts(tmp_path):
    (tmp_path / "set").mkdir()
    (tmp_path / "set" / "file.bin").write_text("deep")
    assert locate(remote("http://127.0.0.1:9/"), str(tmp_path)).read_text() == "deep"
    (tmp_path / "file.bin").write_text("flat")
    assert locate(remote("http://127.0.0.1:9/"), str(tmp_path)).read_text() == "flat"
