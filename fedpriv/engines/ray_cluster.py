"""This process's connection to Ray. There can be one at a time, which sessions share."""

from __future__ import annotations

import atexit
import logging
import os
import secrets
import shutil
import signal
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import ray

from fedpriv.errors import ConfigError

OBJECT_STORE = 80 * 2**20
"""Bytes, hardly more than the least that Ray allows: nothing is put there."""

LONGEST = 40
"""Characters in the path of a private instance's folder: paths of sockets in it must stay below
108."""

MODE = "RAY_AUTH_MODE"
TOKEN = "RAY_AUTH_TOKEN"
TOKEN_PATH = "RAY_AUTH_TOKEN_PATH"


class Connection:
    """Open while `users` sessions need it. Where the process was connected before, that connection
    serves and stays."""

    def __init__(self) -> None:
        self.users = 0
        self.address: str | None = None
        self.own = False
        self.folder: str | None = None

    def enter(self, address: str | None) -> None:
        """Connect to a cluster, or start a private instance (None). Raises ConfigError when there
        is no such cluster, or the process is connected to another."""
        if self.users and address != self.address:
            raise ConfigError(
                "engine.address",
                address,
                f"this process already uses engine.address={self.address}",
            )
        if not self.users and not ray.is_initialized():
            self._start(address)
        self.address = address
        self.users += 1

    def leave(self) -> None:
        """Disconnect with the last session; a private instance ends."""
        self.users -= 1
        if not self.users:
            self.stop()

    def stop(self) -> None:
        """Disconnect, whoever needs it."""
        if not self.own:
            return
        with _late_interrupts():
            ray.shutdown(wait_for_processes=True)
            if self.folder is not None:
                shutil.rmtree(self.folder, ignore_errors=True)
            self.own = False
            self.folder = None

    def _start(self, address: str | None) -> None:
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
                signal.signal(
                    signal.SIGTERM, handler
                )  # Ray has put its own in the place of somebody else's

    def _start_private(self) -> None:
        """Ray's files are in a folder of this instance's own, the object store too, since /dev/shm
        may be small. Its ports are open to who has the token, a new one; Ray reads it once in a
        process, so it stays set."""
        if not any(os.environ.get(name) for name in (MODE, TOKEN, TOKEN_PATH)):
            os.environ[TOKEN] = secrets.token_hex(32)
        self.folder = _folder()
        _init(
            "local",
            include_dashboard=False,
            object_store_memory=OBJECT_STORE,
            _plasma_directory=self.folder,
            _temp_dir=self.folder,
            # Else Ray keeps as many idle processes as there are cores.
            _system_config={"enable_worker_prestart": False, "prestart_worker_first_driver": False},
        )


CONNECTION = Connection()
atexit.register(CONNECTION.stop)


def _in_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()


@contextmanager
def _late_interrupts() -> Iterator[None]:
    """Interrupts take effect in the end: Ray, interrupted while it starts or stops, leaves
    processes behind."""
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


def _folder() -> str:
    place = tempfile.gettempdir()
    return tempfile.mkdtemp(
        prefix="ray-", dir=place if len(place) + len("/ray-12345678") <= LONGEST else "/tmp"
    )


def _connect(address: str) -> None:
    try:
        _init(address)
    except (ConnectionError, RuntimeError, ValueError, ray.exceptions.RayError) as error:
        why = str(error.__cause__ or error).strip().split("\n")[0].split(". ")[0]
        advice = f"; a cluster with a token needs {MODE}=token and {TOKEN} or {TOKEN_PATH}"
        raise ConfigError(
            "engine.address", address, f"Ray cannot connect ({why}){advice}"
        ) from error


def _init(address: str, **options: Any) -> None:
    ray.init(address, log_to_driver=False, logging_level=logging.ERROR, **options)
