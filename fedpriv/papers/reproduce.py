"""Draw the papers' figures again: `fedpriv reproduce [--profile paper] [--jobs 2]
[paper/figure ...]`.

Most figures are an experiment (a sweep) and a drawing of its runs. Without names, the command draws
the figures that need no downloaded data; `all` draws every figure. Results go to
outputs/<name>/<time>/, with figure.png, and about.json, which says how it was made. The figures of
Hu et al., Lowy et al. and Jeon et al. that methods decide are drawn by `fedpriv replicate`.
"""

from __future__ import annotations

import json
import os
import resource
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from datetime import datetime
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

import pandas as pd

import fedpriv
from fedpriv.errors import FedprivError, require
from fedpriv.papers import claimed_certified
from fedpriv.papers.experiments import quick_profiles, run_experiment
from fedpriv.papers.hu import optimality_gap
from fedpriv.papers.huang import excess_risk
from fedpriv.papers.ledger import figures
from fedpriv.papers.ledger.command import PROGRAMS
from fedpriv.papers.ledger.entries import entries
from fedpriv.papers.secured_fl import averaging_error, peer_accuracy, peer_leakage
from fedpriv.papers.study import study
from fedpriv.papers.uldp_fl import clipping_overhead, group_privacy
from fedpriv.reports import privacy_utility
from fedpriv.reports.finished_runs import find_runs
from fedpriv.settings.words import near
from fedpriv.util.durable_files import replace_file
from fedpriv.util.parsers import Parser
from fedpriv.util.printing import say
from fedpriv.util.source_commit import source_commit

FigureMaker = Callable[[Path, str], object]
"""Writes figure.png into a folder, with a profile. Raises FedprivError when it fails."""


def sweeps(
    folder: Path, profile: str, *, names: Sequence[str], draw: Callable[..., object], **options: Any
) -> None:
    """Run the experiments `names` and draw their runs; the first one has the figure's name."""
    for name in names:
        # The further experiments of a figure have the first one's quick profile.
        run_experiment(name, folder / Path(name).name, profile, profile_of=names[0])
    draw(find_runs([folder]), folder / "figure.png", **options)


def counted(folder: Path, profile: str, *, name: str) -> None:
    """Measure an entry of the ledger without a sweep, and draw it like the ledger."""
    table = pd.DataFrame(resolve_name(PROGRAMS[name])(say, quick=profile == "quick"))
    table.to_csv(folder / "measured.csv", index=False)
    figures.draw(entries()[name], table, folder / "figure.png")


def uldp(*names: str, **options: Any) -> FigureMaker:
    """Two panels for each setting of Uldp-FL."""
    paths = [f"uldp_fl/{name}" for name in names]
    return partial(sweeps, names=paths, draw=privacy_utility.draw, **options)


def users(config: Mapping[str, Any]) -> str:
    """A configuration's users and allocation, as Uldp-FL names them."""
    allocator = config["allocator"]
    labels = allocator.get("labels_per_user")
    name = allocator["_target_"].rpartition(".")[2].lower()
    text = f"{allocator['n_users']:,} users, {name}"
    return f"{text}, {labels} labels a user" if labels else text


def silos(config: Mapping[str, Any]) -> str:
    """The same, after the number of silos."""
    return f"{config['allocator']['n_silos']} silos, {users(config)}"


FIGURES: dict[str, FigureMaker] = {
    "claimed_certified": claimed_certified.draw,
    "uldp_fl/fig2": group_privacy.draw,
    "uldp_fl/fig4_embedded": uldp("fig4_embedded", title="breast cancer, 50 users, zipf"),
    "uldp_fl/fig4": uldp("fig4", title="creditcard", row_title=users),
    "uldp_fl/fig5": uldp("fig5", "fig5_10000", title="MNIST", metric="loss", row_title=users),
    "uldp_fl/fig6": uldp("fig6", title="heart disease", row_title=users),
    "uldp_fl/fig7": uldp("fig7", title="TCGA-BRCA", row_title=users),
    "uldp_fl/fig8": uldp(
        "fig8", title="creditcard, weights by records or equal", metric="loss", row_title=silos
    ),
    "uldp_fl/fig10": uldp("fig10", title="creditcard, sampled users", row_title=users),
    "uldp_fl/fig10_mnist": uldp("fig10_mnist", title="MNIST, sampled users", row_title=users),
    "uldp_fl/fig11": partial(counted, name="uldp_fl/fig11"),
    "uldp_fl/fig12": partial(counted, name="uldp_fl/fig12"),
    "uldp_fl/theorem6": clipping_overhead.draw,
    "hu/theory": optimality_gap.draw,
    "huang/excess_risk": excess_risk.draw,
    "secured_fl/fig3_femnist": partial(
        peer_accuracy.draw, name="secured_fl/fig3_femnist", words=peer_accuracy.femnist_words
    ),
    "secured_fl/fig3_shakespeare": partial(peer_accuracy.draw, name="secured_fl/fig3_shakespeare"),
    "secured_fl/fig3_cifar10": partial(peer_accuracy.draw, name="secured_fl/fig3_cifar10"),
    "secured_fl/fig4": averaging_error.draw,
    "secured_fl/fig6": partial(counted, name="secured_fl/fig6"),
    "secured_fl/leakage": peer_leakage.draw,
    "study/breast_cancer": partial(
        study.figure,
        name="study/breast_cancer",
        title="breast cancer, 100 users, 3 silos",
    ),
    "study/creditcard": partial(
        study.figure,
        name="study/creditcard",
        title="card payments, 200 users, 3 silos",
    ),
}
DEFAULT = (
    "claimed_certified",
    "uldp_fl/fig2",
    "uldp_fl/fig4_embedded",
    "uldp_fl/theorem6",
    "hu/theory",
    "secured_fl/leakage",
    "study/breast_cancer",
)
"""Figures of `make figures`: they take minutes, and their data are part of the package."""


def side_by_side(
    names: Sequence[str], profile: str, jobs: int
) -> Iterator[tuple[str, Callable[[], object]]]:
    """Draw figures in `jobs` processes, the longest ones first; yields each as it ends, with a
    function that raises if it failed.

    The processes share the processors. The output of each is in log.txt in its folder.
    """
    os.environ["OMP_NUM_THREADS"] = str(max(1, (os.cpu_count() or 1) // jobs))
    longest = sorted(names, key=lambda name: -quick_profiles()[name]["seconds"])
    # One process per figure, so that memory is released after each.
    with ProcessPoolExecutor(jobs, get_context("spawn"), max_tasks_per_child=1) as pool:
        futures = {pool.submit(make_figure, name, profile, logged=True): name for name in longest}
        for number, future in enumerate(as_completed(futures), 1):
            result = "FAILED" if future.exception() else "is drawn"
            say(f"{number} of {len(names)}: {futures[future]} {result}", file=sys.stderr)
            yield futures[future], future.result


def make_figure(name: str, profile: str, *, logged: bool = False) -> None:
    """Draw one figure into a folder, and note how long it took.

    logged: whether log.txt in its folder gets all output of this process.
    """
    wall = time.monotonic()
    processor = _processor_seconds()
    folder = Path("outputs") / name / f"{datetime.now():%Y-%m-%d_%H-%M-%S}"
    folder.mkdir(parents=True, exist_ok=True)
    if logged:
        with (folder / "log.txt").open("w") as log:
            for output in (1, 2):
                os.dup2(log.fileno(), output)
    FIGURES[name](folder, profile)
    option = f" --profile {profile}" if profile != "quick" else ""
    about = {
        "name": name,
        "command": f"fedpriv reproduce {name}{option}",
        "profile": profile,
        "version": fedpriv.__version__,
        "commit": source_commit(),
        "seconds": round(time.monotonic() - wall, 1),
        "processor_seconds": round(_processor_seconds() - processor, 1),
        "processors": os.cpu_count(),
    }
    replace_file(folder / "about.json", (json.dumps(about, indent=2) + "\n").encode())
    say(folder / "figure.png")


def _processor_seconds() -> float:
    """Of this process and of the child processes that have ended."""
    uses = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(use.ru_utime + use.ru_stime for use in uses)


def main(words: list[str]) -> None:
    """Draw the figures that the command line names.

    Raises FedprivError for a figure that does not exist or was not drawn.
    """
    parser = Parser("fedpriv reproduce", description=__doc__)
    parser.add_argument("names", nargs="*", default=DEFAULT, help=", ".join(FIGURES))
    parser.add_argument("--profile", choices=("quick", "paper"), default="quick")
    parser.add_argument("--jobs", type=int, default=1, help="figures drawn at the same time")
    args = parser.parse_args(words)
    require(args.jobs >= 1, "--jobs", args.jobs, "a positive number")
    names = [*FIGURES] if args.names == ["all"] else args.names
    for name in names:
        if name not in FIGURES:
            hint = near(name, FIGURES)
            if name in entries() and entries()[name].replication:
                hint = f"fedpriv replicate {name} draws it; "
            raise FedprivError(f"{name}: no such figure; {hint}allowed: {', '.join(FIGURES)}")
    ends: Iterable[tuple[str, Callable[[], object]]]
    ends = ((name, partial(make_figure, name, args.profile)) for name in names)
    if args.jobs > 1:
        ends = side_by_side(names, args.profile, args.jobs)
    failed = []
    for name, draw in ends:
        try:
            draw()
        except (FedprivError, BrokenProcessPool) as failure:  # the latter: killed or out of memory
            say(f"{name}: {failure}", file=sys.stderr)
            failed.append(name)
    if failed:
        raise FedprivError(f"not drawn: {', '.join(failed)}")
