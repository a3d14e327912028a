"""Ray for tests: one cluster on this machine for all of them, and clusters that the page's commands
start, with a token, for tests that kill them."""

import contextlib
import os
import shlex
import signal
import socket
import subprocess
import sys
import tempfile
import uuid
from pathlib import Path
from unittest import mock

import pytest
from page_blocks import ROOT, blocks

STORE = 80 * 2**20
"""Bytes of a node's object store: about the least that Ray allows."""


@pytest.fixture(scope="session")
def cluster():
    from ray.cluster_utils import Cluster

    quiet = {"enable_worker_prestart": False, "prestart_worker_first_driver": False}
    head = {
        "num_cpus": 2,
        "object_store_memory": STORE,
        "include_dashboard": False,
        "_system_config": quiet,
    }
    # Not pytest's folder: names of sockets must be short.
    with (
        tempfile.TemporaryDirectory(prefix="t", dir="/tmp", ignore_cleanup_errors=True) as folder,
        mock.patch.dict(os.environ, RAY_TMPDIR=folder),
    ):
        cluster = Cluster(True, head_node_args=head)
        try:
            yield cluster
        finally:
            cluster.shutdown()


PAGE = ROOT / "docs" / "cluster.md"
HEAD, NODE = "127.0.0.1", "127.0.0.2"
"""Addresses of the two nodes, both on this machine; Ray turns the first into its outer one."""
PRINTED_HEAD = "10.0.0.1:6379"
"""The address of the head on the page."""
OPTIONS = [f"--object-store-memory={STORE}", "--include-log-monitor=false"]


def page_line(start):
    """The one command of the page that begins so, in words."""
    shown = [block.text for block in blocks(PAGE) if block.language == "bash"]
    [line] = [line for line in "".join(shown).splitlines() if line.startswith(start)]
    return shlex.split(line)


class StartedCluster:
    """Two nodes that the page's commands start, with processors for a few parties each.

    environment: of everything that belongs to it; its home holds the token.
    """

    def __init__(self, folder, cpus):
        self.folder, self.cpus = folder, cpus
        with socket.socket() as free:
            free.bind(("", 0))
            self.port = free.getsockname()[1]
        self.mark = f"FEDPRIV_TEST_CLUSTER={uuid.uuid4().hex}"
        kept = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
        exports = [word for word in page_line("export ") if "=" in word]
        added = dict(pair.split("=") for pair in (*exports, self.mark))
        path = os.pathsep.join([str(ROOT), os.path.dirname(__file__)])
        self.environment = kept | added | {"HOME": folder, "PYTHONPATH": path}
        self.ray(*page_line("ray get-auth-token")[1:])
        self.start_head()
        self.start_node()

    def ray(self, *words):
        command = [str(Path(sys.executable).with_name("ray")), *words]
        done = subprocess.run(command, env=self.environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def start_head(self):
        printed = page_line("ray start --head")[1:]
        words = [f"--port={self.port}" if word.startswith("--port=") else word for word in printed]
        options = [*OPTIONS, f"--num-cpus={self.cpus}", f"--temp-dir={self.folder}"]
        self.ray(*words, *options, "--include-dashboard=false")
        [head] = self.processes("gcs_server")
        arguments = Path(f"/proc/{head}/cmdline").read_text().split("\0")
        [host] = [word.split("=")[1] for word in arguments if word.startswith("--node-ip-address=")]
        self.address = f"{host}:{self.port}"

    def start_node(self):
        """The second node, with its own environment, for all the difference there is."""
        printed = [word.replace(PRINTED_HEAD, self.address) for word in page_line("ray start --ad")]
        self.ray(*printed[1:], *OPTIONS, f"--num-cpus={self.cpus}", f"--node-ip-address={NODE}")

    def processes(self, kind=""):
        """Ids of its processes, parties and runs included. kind: part of their command."""
        found = []
        for path in Path("/proc").glob("[0-9]*"):
            try:
                mine = self.mark.encode() in (path / "environ").read_bytes().split(b"\0")
                if mine and kind in (path / "cmdline").read_text():
                    found.append(int(path.name))
            except OSError:
                continue
        return found

    def parties(self):
        return self.processes("ray::PartyProcess")

    def kill_node(self):
        self._kill_with_children(self.processes(f"--node_ip_address={NODE}"))

    def kill_head(self):
        host = self.address.split(":")[0]
        self._kill_with_children(
            self.processes("gcs_server") + self.processes(f"--node_ip_address={host}")
        )

    def _kill_with_children(self, pids):
        """All at once, as a machine goes."""
        assert pids
        for pid in [*pids, *(one for one in self.processes() if parent(one) in pids)]:
            kill(pid)

    def close(self):
        for pid in self.processes():
            kill(pid)


def kill(pid):
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def parent(pid):
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return None


@pytest.fixture
def started_cluster():
    # Not pytest's folder: names of sockets must be short.
    with tempfile.TemporaryDirectory(prefix="t", dir="/tmp", ignore_cleanup_errors=True) as folder:
        started = []
        try:
            yield lambda cpus: started.append(StartedCluster(folder, cpus)) or started[-1]
        finally:
            for cluster in started:
                cluster.close()
