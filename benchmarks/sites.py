"""A round of secure aggregation between sites, beside the same round in one process.

Ten sites dial a coordinator over loopback, with mutual TLS 1.3; all run in threads of one process,
on one thread of computation each. The wire's time is that of as many phases and bytes without any
computation. Both runs sign and verify their messages, and take alternating turns, by the clock. The
ratio is that of the round between sites to the sum of the other round and the wire.
"""

from __future__ import annotations

import socket
import statistics
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from time import perf_counter

from benchmarks._fresh_process import in_fresh_process
from benchmarks._ratios import ratio
from benchmarks.scaling import parameters, wide
from fedpriv.engines.base import Engine, Network, Session
from fedpriv.engines.inprocess import InProcess
from fedpriv.parties.party import Memory, PartySpec

TURNS = 5
SILOS, WIDTH = 10, 994
GOAL = 1.5
"""Most times as long as one process and the wire."""


@contextmanager
def lines(answers: Mapping[str, Callable[[bytes], bytes]]) -> Iterator:
    """A switchboard to which a site dials for each name."""
    from fedpriv.crypto.certificates import new_certificate
    from fedpriv.engines.site_lines import Certificates, Switchboard, dial

    with tempfile.TemporaryDirectory() as name, socket.socket() as free, ExitStack() as stack:
        folder, ended = Path(name), threading.Event()
        free.bind(("localhost", 0))
        address = f"localhost:{free.getsockname()[1]}"
        free.close()
        own = {}
        for party in ("coordinator", *answers):
            key, _ = new_certificate(party, folder / "keys", folder)
            own[party] = Certificates(party, key, folder)
        board = Switchboard(address, tuple(answers), own["coordinator"])
        always = {"computing": lambda: True, "say": str, "until": ended}
        for party, answer in answers.items():
            words = (address, "coordinator", own[party], answer)
            site = threading.Thread(target=dial, args=words, kwargs=always)
            site.start()
            stack.callback(site.join)
        stack.callback(ended.set)
        stack.callback(board.close)
        board.wait(frozenset(answers), 60)
        yield board


@dataclass(frozen=True)
class Loopback(Engine):
    """Silos at sites of this process, which dial it. stack: closes their lines."""

    stack: ExitStack

    def open(self, specs: Mapping[str, PartySpec], memories: Mapping[str, Memory]) -> Session:
        from fedpriv.engines.sites_session import SitesSession
        from fedpriv.sites.host import SiteHost

        silos = {name: one for name, one in specs.items() if name.startswith("silo")}
        answers = {name: SiteHost(one, lambda: False).answer for name, one in silos.items()}
        board = self.stack.enter_context(lines(answers))
        helpers = {name: one for name, one in specs.items() if name not in silos}
        digests = {name: one.settings.digest for name, one in silos.items()}
        return SitesSession(helpers, digests, board, 60, 600)


class Read(Network):
    """Somebody else may read the messages, so that parties sign and check them."""


def main() -> None:
    """Measure in a new process, and print a line."""
    one, wire, apart, empty = in_fresh_process(measure)
    both = [own + way for own, way in zip(one, wire)]
    took, alone, way = map(statistics.median, (apart, one, wire))
    met = "met" if took <= GOAL * (alone + way) else "MISSED"
    print(
        f"{SILOS} sites, {parameters(WIDTH):,} numbers, secagg: {took:.2f} s; one process "
        f"{alone:.2f} s, wire {way:.2f} s; {ratio(both, apart)}, at most {GOAL:g}: {met}; an empty "
        f"phase {1000 * empty:.1f} ms"
    )


def measure() -> tuple[list[float], list[float], list[float], float]:
    """Seconds of a round in one process, of the wire and of a round between sites, in each turn,
    and the median of an empty phase."""
    import torch

    from fedpriv.runtime import prepare
    from fedpriv.testing import experiment

    torch.set_num_threads(1)
    words = ("algo=uldp_avg", "data=artificial", f"preset.n_silos={SILOS}", "data.size=200")
    exp = experiment(*words, *wide(WIDTH), "aggregation=secagg", "rounds=100")
    seconds: tuple[list[float], list[float], list[float]] = ([], [], [])
    with ExitStack() as stack:
        engines = (InProcess(), Loopback(stack))
        runs = [stack.enter_context(prepare(replace(exp, engine=one))) for one in engines]
        runs[0].session.network = Read
        states = [run.state for run in runs]
        for turn in range(TURNS + 1):
            spent = []
            for place, run in enumerate(runs):
                since = perf_counter()
                result = run.run_round(run.queries(turn + 1), states[place])
                spent.append(perf_counter() - since)
                states[place] = result.state
            if turn == 0:
                traffic = result.traffic
                wires = stack.enter_context(wire(traffic))
                continue
            for column, value in zip(seconds, (spent[0], wires(), spent[1])):
                column.append(value)
        if states[0].params.tobytes() != states[1].params.tobytes():
            raise RuntimeError("the runs have different bits")
        empty = statistics.median(wires(0) for _ in range(20))
    return *seconds, empty


@contextmanager
def wire(traffic) -> Iterator[Callable[..., float]]:
    """Measures phases without computation. Given nothing: as many phases and bytes as a round has;
    given a number of bytes: one phase with so many from each site."""
    up, down = (
        sum(row["bytes"] for row in traffic if (row["party"] == "server") == helper) // SILOS
        for helper in (False, True)
    )
    steps = len({row["step"] for row in traffic})
    replies = bytes(up)

    def phase(board, down: int, up: int) -> None:
        request = up.to_bytes(8, "big") + bytes(down)
        asked = [(line, line.ask(request)) for line in board.lines.values()]
        for line, reply in asked:
            line.within(reply, 60)

    answers = {
        f"silo{number}": lambda frame: replies[: int.from_bytes(frame[:8], "big")] or b" "
        for number in range(SILOS)
    }
    with lines(answers) as board:

        def measured(size: int | None = None) -> float:
            since = perf_counter()
            phase(board, down if size is None else size, up if size is None else size)
            for _ in range(steps - 1 if size is None else 0):
                phase(board, 0, 0)
            return perf_counter() - since

        yield measured
