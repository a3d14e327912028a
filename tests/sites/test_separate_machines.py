"""A study between processes whose only link is the network: each site in a network namespace of its
own. Slow, and for root on Linux."""

import os
import shutil
import struct
import subprocess
import sys
from pathlib import Path

import pytest

from sites.study import SILOS, Federation, write_yaml

pytest.importorskip("grpc")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        sys.platform != "linux" or os.geteuid() != 0 or shutil.which("ip") is None,
        reason="makes network namespaces",
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


@pytest.mark.parametrize("aggregation", ["plain", "secagg"])
def test_the_coordinator_never_holds_a_record(tmp_path, machines, aggregation):
    settings = (f"aggregation={aggregation}", "rounds=5")
    here = Federation(tmp_path, settings, port=18_443)
    for silo in SILOS:
        table = tmp_path / f"{silo}.csv"
        lines = table.read_text().splitlines()
        patient, hospital, _, dose, died = lines[1].split(",")
        lines[1] = ",".join([patient, hospital, NEEDLE, dose, died])
        table.write_text("\n".join(lines))
        address = machines[silo][1]
        write_yaml(
            tmp_path / f"{silo}.yaml", here.site_file(silo) | {"coordinator": f"{address}:18443"}
        )
        site = here.site(silo)
        site.approve(site.published())
    sites = [
        subprocess.Popen([*machines[silo][0], *FEDPRIV, "site", "serve", f"{tmp_path}/{silo}.yaml"])
        for silo in SILOS
    ]
    words = [*here.words, "engine.listen=0.0.0.0:18443", f"hydra.run.dir={tmp_path}/apart"]
    hold = tmp_path / "hold.py"
    hold.write_text(HOLD)
    coordinator = subprocess.Popen(
        [sys.executable, str(hold), *words],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert coordinator.stdout.readline() == "trained\n"
    assert found_in(coordinator.pid, b"model.safetensors")
    assert not found_in(coordinator.pid, NEEDLE.encode())
    assert not found_in(coordinator.pid, struct.pack("<d", float(NEEDLE)))
    assert all(found_in(site.pid, NEEDLE.encode()) for site in sites)
    coordinator.communicate("\n")
    for site in sites:
        site.terminate()
        assert site.wait() == 0
    parts = [(tmp_path / f"{silo}.csv").read_text().splitlines()[1:] for silo in SILOS]
    (tmp_path / "all.csv").write_text(
        "\n".join(["patient,hospital,age,dose,died", *[line for part in parts for line in part]])
    )
    whole = [*here.site("east").published().words, f"data.path={tmp_path}/all.csv", "quiet=true"]
    subprocess.run([*FEDPRIV, *whole, f"hydra.run.dir={tmp_path}/whole"], check=True)
    models = [(tmp_path / run / "model.safetensors").read_bytes() for run in ("apart", "whole")]
    assert models[0] == models[1]


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
