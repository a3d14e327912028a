"""This process's connection to Ray, of which there is at most one, and the cluster's nodes."""

from __future__ import annotations

import atexit
import logging
import math
import os
import secrets
import shutil
import signal
import socket
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import ray

from fedpriv.errors import ConfigError, FedprivError, require

OBJECT_STORE = 80 * 2**20
"""Bytes, close to the minimum that Ray allows: nothing is stored there."""

LONGEST = 40
"""Most characters in the path of a private instance's folder: the paths of its sockets must stay
below 108."""

ANSWER = 2.0
"""Seconds in which a machine accepts a connection, however busy it is."""

HEAD_GONE = 10.0
"""Seconds without the cluster's head after which sessions end. Ray itself ends the whole process,
without a word to the run, after 60."""

MODE = "RAY_AUTH_MODE"
TOKEN = "RAY_AUTH_TOKEN"
TOKEN_PATH = "RAY_AUTH_TOKEN_PATH"


@dataclass(frozen=True)
class Node:
    """A machine of the cluster, as Ray last knew it.

    port: on which Ray listens there.
    cpus, gpus: that Ray may give away there.
    """

    id: str
    address: str
    port: int
    cpus: float
    gpus: float

    def answers(self) -> bool:
        """Whether Ray runs there. Ray notices up to 15 seconds later that it does not."""
        return listens(self.address, self.port)


def nodes() -> list[Node]:
    """The nodes that Ray takes for present. Never ends without a head."""
    listed: Callable[[], list[dict[str, Any]]] = ray.nodes
    return [
        Node(
            each["NodeID"],
            each["NodeManagerAddress"],
            each["NodeManagerPort"],
            each["Resources"].get("CPU", 0.0),
            each["Resources"].get("GPU", 0.0),
        )
        for each in listed()
        if each["Alive"]
    ]


def listens(host: str, port: int) -> bool:
    try:
        with socket.create_connection((host, port), timeout=ANSWER):
            return True
    except OSError:
        return False


@dataclass(frozen=True)
class Share:
    """What Ray reserves for one party, on one node.

    cpus, gpus: as in `RayEngine`.
    """

    cpus: float
    gpus: float

    def places(self, nodes: Iterable[Node]) -> float:
        """How many parties fit on these nodes; other programs are left out of account."""
        fits = [(_fit(self.cpus, node.cpus), _fit(self.gpus, node.gpus)) for node in nodes]
        return sum(map(min, fits))

    def of(self, parties: int) -> str:
        """What so many parties need, in words."""
        words = [
            f"{parties * each:g} {unit}{'' if parties * each == 1 else 's'}"
            for each, unit in ((self.cpus, "processor"), (self.gpus, "GPU"))
            if each
        ]
        return " and ".join(words) or "a node"

    def require_room(self, parties: int) -> None:
        """Raise ConfigError if the cluster is too small for so many parties."""
        present = nodes()
        for key, resource, each in (("cpus", "CPU", self.cpus), ("gpus", "GPU", self.gpus)):
            needed, available = parties * each, sum(getattr(node, key) for node in present)
            allowed = f"all parties need {needed:g} {resource}s, and Ray has {available:g}"
            require(needed <= available, f"engine.{key}_per_party", each, allowed)


def _fit(each: float, available: float) -> float:
    return math.floor(available / each + 1e-6) if each else math.inf


class Connection:
    """The connection, open while `users` sessions need it. If the process was connected before,
    that connection is used and stays open."""

    def __init__(self) -> None:
        self.users = 0
        self.address: str | None = None
        self.own = False
        self.folder: str | None = None
        self.head = ""
        self.seen = 0.0  # when the head was last known to be there

    def enter(self, address: str | None) -> None:
        """Connect to a cluster, or start a private instance (None). Raises ConfigError if there is
        no such cluster, or if the process is connected to another one."""
        if self.users and address != self.address:
            raise ConfigError(
                "engine.address",
                address,
                f"this process already uses engine.address={self.address}",
            )
        if not self.users and not ray.is_initialized():
            self.start(address)
        self.head = ray.get_runtime_context().gcs_address
        self.address = address
        self.users += 1

    def require_head(self, timeout: float, since: float = 1.0) -> None:
        """Raise FedprivError if the cluster's head has left: parties still answer then, but no lost
        party can be started again.

        timeout: seconds for which it may be away, at most `HEAD_GONE`.
        since: seconds for which an earlier look is enough.
        """
        began = time.monotonic()
        if began < self.seen + since:
            return
        host, _, port = self.head.rpartition(":")
        while not listens(host.strip("[]"), int(port)):
            if time.monotonic() > began + min(HEAD_GONE, timeout):
                raise FedprivError(
                    f"the head of the Ray cluster ({self.head}) has left; start it again, and "
                    "continue with resume=<folder of the run> --trust-code"
                )
            time.sleep(0.5)
        self.seen = time.monotonic()

    def leave(self) -> None:
        """Disconnect after the last session; a private instance ends."""
        self.users -= 1
        if not self.users:
            self.stop()

    def stop(self) -> None:
        """Disconnect, even if sessions still need it."""
        if not self.own:
            return
        with _late_interrupts():
            ray.shutdown(wait_for_processes=True)
            if self.folder is not None:
                remove_folder(self.folder)
            self.own = False
            self.folder = None

    def start(self, address: str | None) -> None:
        handler = signal.getsignal(signal.SIGTERM)
        self.own = True
        try:
            if address is None:
                with _late_interrupts():
                    self._start_private()
            else:
                _connect(address)
        except BaseException:
            self.stop()
            raise
        finally:
            if _in_main_thread() and handler not in (signal.SIG_DFL, None):
                signal.signal(signal.SIGTERM, handler)  # Ray has replaced it

    def _start_private(self) -> None:
        """Start Ray with a folder of its own, for the object store too, since /dev/shm may be
        small. A new token protects its ports. Ray reads the token once in a process, so it stays
        set."""
        if not any(os.environ.get(name) for name in (MODE, TOKEN, TOKEN_PATH)):
            os.environ[TOKEN] = secrets.token_hex(32)
        self.folder = _folder()
        # Ray opens its folder to every user of the machine (0777), so it gets one inside ours.
        inside = os.path.join(self.folder, "r")
        os.mkdir(inside, 0o700)
        initialise(
            "local",
            include_dashboard=False,
            object_store_memory=OBJECT_STORE,
            _plasma_directory=inside,
            _temp_dir=inside,
            # Otherwise Ray keeps one idle process for each core.
            _system_config={"enable_worker_prestart": False, "prestart_worker_first_driver": False},
        )


CONNECTION = Connection()
atexit.register(CONNECTION.stop)


def _in_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()


@contextmanager
def _late_interrupts() -> Iterator[None]:
    """Delay interrupts to the end: if interrupted while it starts or stops, Ray leaves processes
    behind."""
    handler = signal.getsignal(signal.SIGINT)
    if handler is None or not _in_main_thread():
        yield
        return
    arrived: list[int] = []
    signal.signal(signal.SIGINT, lambda number, frame: arrived.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)
    if arrived:
        signal.raise_signal(signal.SIGINT)


def remove_folder(folder: str, seconds: float = 20.0) -> None:
    """Remove Ray's folder. Its agents end by themselves a while after the daemon that started them,
    longer on a busy machine, and until then may write new files."""
    end = time.monotonic() + seconds
    shutil.rmtree(folder, ignore_errors=True)
    while os.path.exists(folder) and time.monotonic() < end:
        time.sleep(0.05)
        shutil.rmtree(folder, ignore_errors=True)


def _folder() -> str:
    place = tempfile.gettempdir()
    return tempfile.mkdtemp(
        prefix="ray-", dir=place if len(place) + len("/ray-12345678/r") <= LONGEST else "/tmp"
    )


def _connect(address: str) -> None:
    try:
        initialise(address)
    except (ConnectionError, RuntimeError, ValueError, ray.exceptions.RayError) as error:
        told = str(error.__cause__ or error).strip()
        why = told.split("\n")[0].split(". ")[0]
        if "AuthenticationError" in told:
            places = f"~/.ray/auth_token, {TOKEN} or {TOKEN_PATH}"
            why = f"it has another token; set {MODE}=token, and its token in {places}"
        raise ConfigError("engine.address", address, f"Ray cannot connect: {why}") from error


def initialise(address: str, **options: Any) -> None:
    ray.init(address, log_to_driver=False, logging_level=logging.ERROR, **options)
