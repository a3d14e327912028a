"""Lines between a coordinator and sites that dial it: gRPC streams under mutual TLS 1.3.

Each site opens one stream, and answers each request that comes by one reply. There is no authority:
a party's certificate is its own, and the others hold it under its name. A request and a reply are
bytes; an empty frame of a site says that it is still computing.
"""

from __future__ import annotations

import os
import queue
import random
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as LateError
from dataclasses import dataclass, field
from pathlib import Path

import grpc

from fedpriv.crypto.certificates import outdated
from fedpriv.crypto.key_files import require_private
from fedpriv.errors import FedprivError
from fedpriv.parties.messages import LIMIT
from fedpriv.util.untrusted_files import SETTINGS_BYTES, read_bytes, reason_of

# Read when the first connection is made. The suites of an RSA key leave, beside our keys, none but
# those of TLS 1.3; a refused handshake need not stand on every terminal.
os.environ.setdefault("GRPC_SSL_CIPHER_SUITES", "ECDHE-RSA-AES256-GCM-SHA384")
os.environ.setdefault("GRPC_VERBOSITY", "NONE")

SERVICE, METHOD = "fedpriv.Site", "Answer"
COMPUTING = b""
BEAT = 2.0
"""Seconds between two frames of a site that computes."""
SILENT = 60.0
"""Seconds without a frame after which a line has ended, for one that should answer or compute."""
OPTIONS = [
    ("grpc.max_receive_message_length", LIMIT),
    ("grpc.max_send_message_length", LIMIT),
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.http2.ping_timeout_ms", 10_000),  # keepalive_timeout_ms has no effect of its own
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.http2.min_ping_interval_without_data_ms", 5_000),
]
RETRY = (0.5, 3.0)
"""Between these seconds a site dials again."""


class EndedError(Exception):
    """A line that has ended, and why."""

    def __init__(self, why: str = "its line has ended") -> None:
        super().__init__(why)


@dataclass
class Line:
    """A site's stream: requests that wait, one after the other, until it ends.

    cancel: ends the stream.
    asked: when the last request was made, by `time.monotonic`.
    heard: when the last frame came since then.
    """

    cancel: Callable[[], object]
    asked: float = 0.0
    heard: float = 0.0
    _waiting: queue.SimpleQueue[tuple[bytes, Future[bytes]] | None] = field(
        default_factory=queue.SimpleQueue
    )
    _ended: bool = False
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def ask(self, request: bytes) -> Future[bytes]:
        """The reply, once it is there; EndedError if the line ends before."""
        reply: Future[bytes] = Future()
        with self._lock:
            if self._ended:
                reply.set_exception(EndedError())
            else:
                self.asked = self.heard = time.monotonic()
                self._waiting.put((request, reply))
        return reply

    def end(self) -> None:
        """Send nothing more, and give no further reply."""
        with self._lock:
            self._ended = True
        self._waiting.put(None)

    def cut(self) -> None:
        """The same at once, whatever the site still sends."""
        self.end()
        self.cancel()

    def requests(self, frames: Iterator[bytes]) -> Iterator[bytes]:
        """The requests in their order; the reply to each comes before the next one goes.

        frames: what the site sends.
        """
        try:
            while (item := self._waiting.get()) is not None:
                request, reply = item
                try:
                    yield request
                    reply.set_result(self._reply(frames))
                finally:
                    if not reply.done():
                        reply.set_exception(EndedError())
        finally:
            self.end()
            while not self._waiting.empty():
                if (left := self._waiting.get()) is not None:
                    left[1].set_exception(EndedError())

    def _reply(self, frames: Iterator[bytes]) -> bytes:
        for frame in frames:
            self.heard = time.monotonic()
            if frame != COMPUTING:
                return frame
        raise EndedError

    def within(self, reply: Future[bytes], seconds: float) -> bytes:
        """The reply, at most so many seconds after its request. Raises EndedError for a line that
        ends before, or is silent."""
        while True:
            now = time.monotonic()
            late, silent = self.asked + seconds - now, self.heard + SILENT - now
            try:
                return reply.result(max(min(late, silent), 0.0))
            except LateError:
                if late <= silent:
                    raise EndedError(f"no answer within engine.timeout={seconds:g} s") from None
                if time.monotonic() >= self.heard + SILENT:
                    raise EndedError(f"nothing heard for {SILENT:g} s") from None


@dataclass(frozen=True)
class Certificates:
    """A party's TLS key, and the certificates of all parties.

    name: of the party.
    key: file of the private key.
    folder: with every party's certificate, as NAME.pem.
    """

    name: str
    key: Path
    folder: Path

    def of(self, name: str) -> bytes:
        """A party's certificate. Raises FedprivError for a file that cannot be read."""
        return _content(self.folder / f"{name}.pem")

    def outdated(self, *names: str) -> str:
        """Which certificates do not hold now, in a line; empty: all do."""
        found = []
        for name in names:
            try:
                found.append(outdated(name, self.of(name)))
            except FedprivError as error:
                found.append(str(error))
            except ValueError:
                found.append(f"{self.folder / name}.pem: not a certificate")
        return "; ".join(filter(None, found))

    @property
    def own(self) -> tuple[bytes, bytes]:
        """The party's private key and certificate. Raises FedprivError for files that cannot be
        used now."""
        if why := self.outdated(self.name):
            raise FedprivError(f"{why}: make a new one (fedpriv keys certificate), for everybody")
        key = _content(self.key)
        require_private(self.key)
        return key, self.of(self.name)


def _plain(certificate: bytes) -> bytes:
    """A certificate whatever its ends of lines."""
    return b"\n".join(certificate.split())


def _content(path: Path) -> bytes:
    try:
        return read_bytes(path, SETTINGS_BYTES)
    except (OSError, ValueError) as error:
        raise FedprivError(f"{path}: {reason_of(error)}") from error


class Switchboard:
    """Where sites' lines end: the coordinator's side.

    lines: of the sites that are connected now, by name.
    """

    def __init__(self, address: str, sites: tuple[str, ...], certificates: Certificates) -> None:
        """Listen. Raises FedprivError if nothing can listen at the address."""
        self.lines: dict[str, Line] = {}
        self.certificates = certificates
        self._names = {_plain(certificates.of(name)): name for name in sites}
        self._changed = threading.Condition()
        alone = [*OPTIONS, ("grpc.so_reuseport", 0)]  # else a second coordinator could listen
        self._server = grpc.server(ThreadPoolExecutor(2 * len(sites) + 2), options=alone)
        stream = grpc.stream_stream_rpc_method_handler(self._stream)
        handler = grpc.method_handlers_generic_handler(SERVICE, {METHOD: stream})
        self._server.add_generic_rpc_handlers([handler])
        credentials = grpc.ssl_server_credentials(
            [certificates.own],
            # Each is its own root.
            root_certificates=b"\n".join(map(certificates.of, sites)),
            require_client_auth=True,
        )
        try:
            self._server.add_secure_port(address, credentials)
        except RuntimeError as error:
            raise FedprivError(f"engine.listen={address}: nothing can listen there") from error
        self._server.start()

    def _stream(self, frames: Iterator[bytes], context: grpc.ServicerContext) -> Iterator[bytes]:
        certificate = context.auth_context()["x509_pem_cert"][0]
        name = self._names.get(_plain(certificate))
        if name is None:
            context.abort(grpc.StatusCode.PERMISSION_DENIED, "this certificate is of no site")
            return
        line = Line(cancel=context.cancel)
        if not context.add_callback(line.end):
            return
        with self._changed:  # a site that dials again has left its last line
            before, self.lines[name] = self.lines.get(name), line
            self._changed.notify_all()
        if before is not None:
            before.cut()
        try:
            yield from line.requests(frames)
        finally:
            with self._changed:
                if self.lines.get(name) is line:
                    del self.lines[name]
                self._changed.notify_all()

    def why_away(self, name: str) -> str:
        """What is known of a site without a line."""
        return ": ".join(filter(None, ("not connected", self.certificates.outdated(name))))

    def wait(self, names: frozenset[str], seconds: float) -> frozenset[str]:
        """Wait until these sites are connected. Returns those that are not, after so many
        seconds."""
        with self._changed:
            self._changed.wait_for(lambda: names <= self.lines.keys(), seconds)
            return names - self.lines.keys()

    def close(self) -> None:
        for line in [*self.lines.values()]:
            line.end()
        self._server.stop(1).wait()


def dial(
    address: str,
    coordinator: str,
    certificates: Certificates,
    reply: Callable[[bytes], bytes],
    *,
    computing: Callable[[], bool],
    say: Callable[[str], None],
    until: threading.Event,
) -> None:
    """The site's side: dial the coordinator, answer its requests, and dial again whenever the line
    ends.

    reply: to a request; called in one thread of its own.
    computing: whether the site is at work on a reply.
    say: gets a line whenever what happens to the line changes.
    until: ends it.
    """
    key, chain = certificates.own
    credentials = grpc.ssl_channel_credentials(certificates.of(coordinator), key, chain)
    options = [*OPTIONS, ("grpc.ssl_target_name_override", coordinator)]
    said = ""
    calls: list[grpc.Call] = []

    def end() -> None:
        until.wait()
        for call in calls:
            call.cancel()

    threading.Thread(target=end, daemon=True).start()
    with ThreadPoolExecutor(1) as worker:
        while not until.is_set():
            with grpc.secure_channel(address, credentials, options) as channel:
                frames: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
                requests = channel.stream_stream(f"/{SERVICE}/{METHOD}")(iter(frames.get, None))
                calls[:] = [requests]
                try:
                    for request in requests:
                        if said != "connected":
                            say(said := "connected")
                        answer = worker.submit(reply, request)
                        _send(answer, frames.put, computing)
                except grpc.RpcError as error:
                    why = certificates.outdated(coordinator, certificates.name)
                    why = why or f"{error.code().name.lower()}: {error.details()}"
                    if said != why:
                        say(said := why)
                finally:
                    frames.put(None)
            until.wait(random.uniform(*RETRY))


def _send(
    answer: Future[bytes], put: Callable[[bytes], None], computing: Callable[[], bool]
) -> None:
    """Send the answer once it is there, and until then that the site computes, if it does."""
    while True:
        try:
            put(answer.result(BEAT))
            return
        except LateError:
            if computing():
                put(COMPUTING)
