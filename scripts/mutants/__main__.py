"""Mutation testing: `python -m scripts.mutants [--jobs n] [file or folder ...]`.

The command changes each file in one place at a time, and runs the file's tests on the change. If
they pass, they miss a mistake of this type: the mutant survives. The command prints survivors. It
exits with 1 unless accepted.txt lists each survivor with a reason. Only scratch copies of the tree
are changed.
"""

from __future__ import annotations

import argparse
import math
import sys
import tempfile
import time
from collections import Counter, deque
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path

from scripts.mutants.forks import IMPORTS, REACHED, SURVIVED, Change, Runner, scratch_copy, warm_up
from scripts.mutants.mutate import Mutant, mutants
from scripts.mutants.planted import planted
from scripts.mutants.reach import SLOWER, Reached, read, tests_for
from scripts.mutants.tests_of import GUARDS_ONLY, chosen_tests, source_files

ROOT = Path(__file__).resolve().parents[2]
ACCEPTED = Path(__file__).with_name("accepted.txt")


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m scripts.mutants", description=__doc__.partition("\n")[0]
    )
    parser.add_argument(
        "files", nargs="*", help="files or folders, such as fedpriv/mechanisms (default: all)"
    )
    parser.add_argument(
        "--all",
        action="store_true",
        help="protocols and primitives too are changed outside of guards",
    )
    parser.add_argument(
        "--every", type=int, default=1, metavar="N", help="run the first of every N mutants only"
    )
    parser.add_argument(
        "--again",
        type=Path,
        metavar="FILE",
        help="run what survived by FILE, an earlier output, only",
    )
    parser.add_argument(
        "--within",
        type=float,
        default=math.inf,
        metavar="SECONDS",
        help="ask the shortest tests, so long",
    )
    parser.add_argument(
        "--planted", action="store_true", help="the mistakes of planted.py instead, planted by hand"
    )
    parser.add_argument("--jobs", type=int, default=2, help="mutants that run at a time")
    arguments = parser.parse_args()
    if arguments.planted:
        return run_planted(arguments.files, arguments.jobs)
    files = source_files(ROOT, arguments.files)
    guards = () if arguments.all else GUARDS_ONLY
    made = [
        mutant
        for file in files
        for mutant in mutants(
            file, (ROOT / file).read_text(), guards=file.startswith(guards or "/")
        )
    ]
    accepted = read_accepted(ACCEPTED)
    names = {one.name for one in made}
    if arguments.again:
        survived = arguments.again.read_text()
        made = [mutant for mutant in made if f" survived: {mutant.name}\n" in survived]
    gone = [name for name in accepted if name.split(" :: ")[0] in files and not is_one(name, names)]
    for name in gone:
        print(f"accepted, but no mutant any more: {name}")
    warm_up()
    counts: dict[str, Counter[str]] = {}
    unexplained = 0
    for mutant, result in results(
        [(mutant, chosen_tests(ROOT, mutant.path)) for mutant in made[:: arguments.every]],
        arguments.jobs,
        arguments.within,
    ):
        if accepted.keys() & {mutant.name, mutant.anywhere}:
            if result != SURVIVED and mutant.name in accepted:
                print(f"accepted, but {result}: {mutant.name}", flush=True)
            result = "accepted" if result == SURVIVED else result
        elif result == SURVIVED:
            unexplained += 1
            print(f"line {mutant.line} survived: {mutant.name}", flush=True)
        counts.setdefault(package(mutant.path), Counter())[result] += 1
    for name, count in counts.items():
        print(
            f"{name}: {count.total()} mutants, "
            + ", ".join(f"{n} {what}" for what, n in sorted(count.items()))
        )
    print(f"{unexplained} survivors that are not in accepted.txt")
    return int(bool(unexplained or gone))


def run_planted(files: list[str], jobs: int) -> int:
    """Run the mistakes planted in the files (default: all), and print the result of each."""
    warm_up()
    made = [one for one in planted(ROOT) if not files or one[0].path in files]
    counts = Counter[str]()
    for mutant, result in results(made, jobs, math.inf):
        counts[result] += 1
        print(f"{result}: {mutant.name}", flush=True)
    print(f"{counts.total()} planted, " + ", ".join(f"{n} {what}" for what, n in counts.items()))
    return int(bool(counts[SURVIVED]))


def read_accepted(file: Path) -> dict[str, str]:
    """The reason for each accepted survivor, by its name."""
    lines = [line for line in file.read_text().splitlines() if line and not line.startswith("#")]
    return dict(tuple(line.rsplit(" :: ", 1)) for line in lines)  # type: ignore[misc]


def is_one(name: str, mutants: set[str]) -> bool:
    """Whether an accepted name is that of a mutant or, with a star, of a function with mutants."""
    return name in mutants or (
        name.endswith(" :: *") and any(one.startswith(name[:-1]) for one in mutants)
    )


def package(path: str) -> str:
    parts = path.split("/")
    return parts[1] if len(parts) > 2 else path


@dataclass
class Bench:
    """A scratch copy of the tree, and the processes that run tests in it.

    tree: the copy.
    runners: by tests, and by whether the process has imported them.
    """

    tree: Path
    runners: dict[tuple[tuple[str, ...], bool], Runner] = field(default_factory=dict)

    def runner(self, tests: tuple[str, ...], *, loaded: bool) -> Runner:
        if (tests, loaded) not in self.runners:
            while len(self.runners) >= MAX_RUNNERS:
                self.runners.pop(next(iter(self.runners))).end()
            self.runners[tests, loaded] = Runner(self.tree, tests, loaded=loaded)
        return self.runners[tests, loaded]

    def end(self) -> None:
        for runner in self.runners.values():
            runner.end()


MAX_RUNNERS = 2
"""Idle processes for each copy of the tree."""


@dataclass(frozen=True)
class PendingMutant:
    """A mutant whose tests have not run yet.

    mutant: the change.
    files: its tests.
    loaded: whether the change can be made after all imports.
    """

    mutant: Mutant
    files: tuple[str, ...]
    loaded: bool = True

    @property
    def change(self) -> Change:
        path = self.mutant.path
        return Change(path, (ROOT / path).read_text(), self.mutant.text)


def results(
    made: list[tuple[Mutant, tuple[str, ...]]], jobs: int, within: float
) -> Iterator[tuple[Mutant, str]]:
    """Each mutant and its result, by its shortest tests, `within` seconds in total.

    made: mutants with the files of their tests.

    Raises RuntimeError if tests fail on the unchanged source.
    """
    with tempfile.TemporaryDirectory(prefix="mutants") as folder, ExitStack() as running:
        free = [Bench(scratch_copy(ROOT, Path(folder, str(job)))) for job in range(jobs)]
        for bench in free:
            running.callback(bench.end)
        known = Reached()
        waiting = deque(PendingMutant(mutant, files) for mutant, files in made)
        started = list[tuple[PendingMutant, Bench, Runner]]()
        while waiting or started:
            while waiting and free:
                trial = waiting.popleft()
                bench = free[-1]
                look_at(bench, trial.files, known)
                own = {
                    test: what
                    for test, what in known.items()
                    if test.partition("::")[0] in trial.files
                }
                tests = tests_for(own, trial.mutant.path, trial.mutant.scope, within)
                if not tests:
                    yield trial.mutant, SURVIVED
                    continue
                runner = bench.runner(trial.files, loaded=trial.loaded)
                runner.start(trial.change, tests, 10 + SLOWER * sum(tests.values()))
                started.append((trial, free.pop(), runner))
            for one in started.copy():
                trial, bench, runner = one
                if result := runner.result():
                    started.remove(one)
                    free.append(bench)
                    if result == IMPORTS:
                        waiting.appendleft(replace(trial, loaded=False))
                    else:
                        yield trial.mutant, result
            time.sleep(0.01)


def look_at(bench: Bench, files: tuple[str, ...], known: Reached) -> None:
    """Record what each test in `files` calls, unless that is known.

    The tests run on the unchanged source, and must pass.
    """
    new = tuple(file for file in files if not any(test.startswith(f"{file}::") for test in known))
    if not new:
        return
    runner = Runner(bench.tree, new, loaded=True)
    try:
        runner.start(None, {}, 900)
        while not (result := runner.result()):
            time.sleep(0.02)
    finally:
        runner.end()
    if result != SURVIVED:
        log = (bench.tree / "mutant.log").read_text()[-2000:]
        raise RuntimeError(f"{' '.join(new)}\n{log}\nfails on the source itself")
    found = read(bench.tree / REACHED)
    known.update(found)
    print(
        f"{sum(seconds for seconds, _ in found.values()):.0f} s unchanged: {' '.join(new)}",
        file=sys.stderr,
    )


if __name__ == "__main__":
    sys.exit(main())
