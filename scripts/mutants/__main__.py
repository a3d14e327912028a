"""Mutation testing of the code that privacy rests on: `python -m scripts.mutants [--jobs n] [file or folder ...]`.

Each file of `tests_of.SOURCES` is changed in one place at a time and its tests are run on the change; tests that pass
then miss a mistake of this kind. Such survivors are printed, and end the command with 1 unless accepted.txt names them
with a reason. Nothing is changed but scratch copies of the tree.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections import Counter, deque
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

from scripts.mutants.forks import Fork, scratch_copy, warm_up
from scripts.mutants.mutate import Mutant, mutants
from scripts.mutants.tests_of import chosen_tests, source_files

ROOT = Path(__file__).resolve().parents[2]
ACCEPTED = Path(__file__).with_name("accepted.txt")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m scripts.mutants", description=__doc__.partition("\n")[0])
    parser.add_argument("files", nargs="*", help="files or folders, such as fedpriv/mechanisms (default: all)")
    parser.add_argument("--every", type=int, default=1, metavar="N", help="run the first of every N mutants only")
    parser.add_argument("--jobs", type=int, default=2, help="mutants that run at a time")
    arguments = parser.parse_args()
    files = source_files(ROOT, arguments.files)
    made = [mutant for file in files for mutant in mutants(file, (ROOT / file).read_text())]
    accepted = read_accepted(ACCEPTED)
    gone = [name for name in accepted if name.split(" :: ")[0] in files and name not in {one.name for one in made}]
    for name in gone:
        print(f"accepted, but no mutant any more: {name}")
    warm_up()
    counts: dict[str, Counter[str]] = {}
    unexplained = 0
    for mutant, result in results(made[:: arguments.every], arguments.jobs):
        if mutant.name in accepted:
            if result != "survived":
                print(f"accepted, but {result}: {mutant.name}", flush=True)
            result = "accepted" if result == "survived" else result
        elif result == "survived":
            unexplained += 1
            print(f"line {mutant.line} survived: {mutant.name}", flush=True)
        counts.setdefault(package(mutant.path), Counter())[result] += 1
    for name, count in counts.items():
        print(f"{name}: {count.total()} mutants, " + ", ".join(f"{n} {what}" for what, n in sorted(count.items())))
    print(f"{unexplained} survivors that nobody has accepted")
    return int(bool(unexplained or gone))


def read_accepted(file: Path) -> dict[str, str]:
    """What each accepted survivor is called, and why it may live."""
    lines = [line for line in file.read_text().splitlines() if line and not line.startswith("#")]
    return dict(tuple(line.rsplit(" :: ", 1)) for line in lines)  # type: ignore[misc]


def package(path: str) -> str:
    parts = path.split("/")
    return parts[1] if len(parts) > 2 else path


Started = tuple[Mutant, tuple[tuple[str, ...], ...], Fork]
"""A mutant, the tests that wait for it, and those that run."""


def _end(started: list[Started]) -> None:
    for *_, fork in started:
        fork.end()


def results(made: list[Mutant], jobs: int) -> Iterator[tuple[Mutant, str]]:
    """Each mutant with what became of it. Raises RuntimeError where tests fail on the source as it is."""
    with tempfile.TemporaryDirectory(prefix="mutants") as folder, ExitStack() as running:
        free = [scratch_copy(ROOT, Path(folder, str(job))) for job in range(jobs)]
        limits: dict[tuple[str, ...], float] = {}
        waiting = deque((mutant, tests) for mutant in made for tests in [chosen_tests(ROOT, mutant.path)])
        started = list[Started]()
        running.callback(_end, started)
        while waiting or started:
            while waiting and free:
                mutant, (tests, *further) = waiting.popleft()
                tree = free.pop()
                if tests not in limits:
                    limits[tests] = time_limit(tree, tests)
                fork = Fork(tree, tests, limits[tests], mutant.path, mutant.text)
                started.append((mutant, tuple(further), fork))
            for mutant, left, fork in started.copy():
                if result := fork.result():
                    started.remove((mutant, left, fork))
                    free.append(fork.tree)
                    if result == "survived" and any(left):
                        waiting.appendleft((mutant, left))
                    else:
                        yield mutant, result
            time.sleep(0.02)


def time_limit(tree: Path, tests: tuple[str, ...]) -> float:
    """Seconds for a mutant: some times what the tests take on the source, which they have to pass."""
    start = time.monotonic()
    fork = Fork(tree, tests, 600)
    while not (result := fork.result()):
        time.sleep(0.02)
    if result != "survived":
        raise RuntimeError(
            f"{' '.join(tests)}\n{(tree / 'mutant.log').read_text()[-2000:]}\nfails on the source itself"
        )
    seconds = time.monotonic() - start
    print(f"{seconds:.0f} s unchanged: {' '.join(tests)}", file=sys.stderr, flush=True)
    return 2 * seconds + 10


if __name__ == "__main__":
    sys.exit(main())
