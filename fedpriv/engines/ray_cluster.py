"""This process's connection to Ray. There is at most one; sessions share it."""

from __future__ import annotations

import atexit
import logging
import os
import secrets
import shutil
import signal
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import ray

from fedpriv.errors import ConfigError

OBJECT_STORE = 80 * 2**20
"""Bytes, close to the minimum that Ray allows: nothing is stored there."""

LONGEST = 40
"""Most characters in the path of a private instance's folder: the paths of its sockets must stay
below 108."""

MODE = "RAY_AUTH_MODE"
TOKEN = "RAY_AUTH_TOKEN"
TOKEN_PATH = "RAY_AUTH_TOKEN_PATH"


class Connection:
    """The connection, open while `users` sessions need it. If the process was connected before,
    that connection is used and stays open."""

    def __init__(self) -> None:
        self.users = 0
        self.address: str | None = None
        self.own = False
        self.folder: str | None = None

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
        self.address = address
        self.users += 1

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
        why = str(error.__cause__ or error).strip().split("\n")[0].split(". ")[0]
        advice = f"; a cluster with a token needs {MODE}=token and {TOKEN} or {TOKEN_PATH}"
        raise ConfigError(
            "engine.address", address, f"Ray cannot connect ({why}){advice}"
        ) from error


def initialise(address: str, **options: Any) -> None:
    ray.init(address, log_to_driver=False, logging_level=logging.ERROR, **options)
