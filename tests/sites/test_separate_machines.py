"""A study between processes whose only link is the network: each party is another user, and each
site is in a network namespace of its own. Slow, and for root on Linux."""

import os
import shutil
import struct
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from sites.study import SILOS, Federation, write_yaml

pytest.importorskip("grpc")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        sys.platform != "linux"
        or os.geteuid() != 0
        or None in (shutil.which("ip"), shutil.which("setpriv")),
        reason="makes network namespaces, for other users",
    ),
]
NEEDLE = "63.71828182845"
"""The age of one patient in the tables."""
FEDPRIV = (sys.executable, "-m", "fedpriv")


@pytest.fixture
def machines():
    """By silo, the words that start a process on its machine, and the coordinator's address
    there."""
    own = f"fp{os.getpid() % 10_000}"
    made = {}
    try:
        for number, silo in enumerate(SILOS):
            name, net = f"{own}{number}", f"10.77.{number}"
            ip("netns", "add", name)
            made[silo] = ("ip", "netns", "exec", name), f"{net}.1"
            ip("link", "add", f"{name}h", "type", "veth", "peer", "name", "up0", "netns", name)
            ip("address", "add", f"{net}.1/24", "dev", f"{name}h")
            ip("link", "set", f"{name}h", "up")
            ip("-n", name, "address", "add", f"{net}.2/24", "dev", "up0")
            ip("-n", name, "link", "set", "up0", "up")
        yield made
    finally:
        for start, _ in made.values():
            ip("link", "del", f"{start[-1]}h")  # the system would do so later
            ip("netns", "del", start[-1])


def ip(*words):
    subprocess.run(["ip", *words], check=True)


@pytest.fixture
def place():
    """A folder that other users may enter."""
    with tempfile.TemporaryDirectory() as name:
        os.chmod(name, 0o711)
        yield Path(name)


class Person:
    """A user of this machine, with a folder of their own, which has what the others sent them."""

    def __init__(self, number, folder, here, keys, machine=()):
        self.folder = folder
        user = str(FIRST_USER + number)
        self.start = (*machine, "setpriv", "--reuid", user, "--regid", user, "--clear-groups")
        folder.mkdir(mode=0o700)
        (folder / "keys").mkdir(mode=0o700)
        for name in ("study.yaml", "schema.yaml", "roster.csv"):
            shutil.copy(here.folder / name, folder)
        shutil.copytree(here.folder / "certificates", folder / "certificates")
        for name in keys:
            shutil.copy2(here.folder / "keys" / name, folder / "keys")

    def settle(self):
        """Own all that is in the folder."""
        user = int(self.start[-2])
        for path in (self.folder, *self.folder.rglob("*")):
            os.chown(path, user, user)

    def run(self, *words, **how):
        home = {"HOME": str(self.folder), "XDG_STATE_HOME": str(self.folder / "home")}
        how = {"cwd": self.folder, "env": os.environ | home} | how
        return subprocess.Popen([*self.start, *map(str, words)], **how)

    @property
    def secrets(self):
        """Files that nobody else may read."""
        private = [*self.folder.glob("keys/*"), *self.folder.glob("*.csv")]
        return [*private, *self.folder.glob("state*/*"), *self.folder.glob("home/**/*.txt")]


FIRST_USER = 54_300


@pytest.mark.parametrize("aggregation", ["plain", "secagg"])
def test_the_coordinator_never_holds_a_record_and_nobody_reads_anothers_files(
    tmp_path, place, machines, aggregation
):
    here = Federation(tmp_path, (f"aggregation={aggregation}", "rounds=5"), port=18_443)
    people = {}
    for number, silo in enumerate(SILOS):
        table = tmp_path / f"{silo}.csv"
        lines = table.read_text().splitlines()
        patient, hospital, _, dose, died = lines[1].split(",")
        lines[1] = ",".join([patient, hospital, NEEDLE, dose, died])
        table.write_text("\n".join(lines))
        start, address = machines[silo]
        keys = (f"silo{number}.key", f"silo{number}.tls")
        people[silo] = one = Person(number, place / silo, here, keys, start)
        shutil.copy(table, one.folder)
        own = {"coordinator": f"{address}:18443", "folder": "state"}
        write_yaml(one.folder / "site.yaml", here.site_file(silo) | own)
        one.settle()
        assert one.run(*FEDPRIV, "site", "approve", "--yes", "site.yaml").wait() == 0
    sites = [people[silo].run(*FEDPRIV, "site", "serve", "site.yaml") for silo in SILOS]
    people["coordinator"] = middle = Person(
        len(SILOS), place / "coordinator", here, ("server.key", "coordinator.tls")
    )
    (middle.folder / "hold.py").write_text(HOLD)
    middle.settle()
    words = [word.replace(str(tmp_path), str(middle.folder)) for word in here.words]
    words = [*words, "engine.listen=0.0.0.0:18443", "hydra.run.dir=apart"]
    piped = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    coordinator = middle.run(sys.executable, "hold.py", *words, **piped)
    assert coordinator.stdout.readline() == "trained\n"
    assert found_in(coordinator.pid, b"model.safetensors")
    assert not found_in(coordinator.pid, NEEDLE.encode())
    assert not found_in(coordinator.pid, struct.pack("<d", float(NEEDLE)))
    assert all(found_in(site.pid, NEEDLE.encode()) for site in sites)
    coordinator.communicate("\n")
    for site in sites:
        site.terminate()
        assert site.wait() == 0
    for name, person in people.items():
        secrets = person.secrets
        assert len(secrets) >= (3 if name == "coordinator" else 6)
        for other in people.values():
            asked = other.run(sys.executable, "-c", READS, *secrets, stdout=subprocess.PIPE)
            assert int(asked.communicate()[0]) == (len(secrets) if other is person else 0)
    parts = [(tmp_path / f"{silo}.csv").read_text().splitlines()[1:] for silo in SILOS]
    (tmp_path / "all.csv").write_text(
        "\n".join(["patient,hospital,age,dose,died", *[line for part in parts for line in part]])
    )
    whole = [*here.site("east").published().words, f"data.path={tmp_path}/all.csv", "quiet=true"]
    subprocess.run([*FEDPRIV, *whole, f"hydra.run.dir={tmp_path}/whole"], check=True)
    models = [path / "model.safetensors" for path in (middle.folder / "apart", tmp_path / "whole")]
    assert models[0].read_bytes() == models[1].read_bytes()


READS = """
import os, sys
print(sum(os.access(path, os.R_OK) for path in sys.argv[1:]))
"""
"""Prints how many of the files that it is told its user may read."""

HOLD = """
import sys
from fedpriv.cli import main
main(sys.argv[1:])
print("trained", flush=True)
sys.stdin.readline()
"""
"""A coordinator whose memory stays for a while after its run."""


def found_in(pid, needle):
    """Whether the memory of a process contains these bytes."""
    with open(f"/proc/{pid}/mem", "rb", 0) as memory:
        for line in Path(f"/proc/{pid}/maps").read_text().splitlines():
            span, access, *_ = line.split()
            start, end = (int(place, 16) for place in span.split("-"))
            if access.startswith("r") and not line.endswith(("[vvar]", "[vsyscall]")):
                try:
                    memory.seek(start)
                    if needle in memory.read(end - start):
                        return True
                except (OSError, ValueError, OverflowError):
                    continue
    return False
