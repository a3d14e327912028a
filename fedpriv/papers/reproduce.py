"""Regenerate the papers' figures: `fedpriv reproduce [--profile paper] [--jobs 2] [paper/figure
...]`.

Most are an experiment (a sweep) and its drawing. Without names: those that need no data set of
their own; `all` is every one. Results go to outputs/<name>/<time>, figure.png beside them, and
outputs/figures/index.html shows all that have been drawn.
"""

from __future__ import annotations

import argparse
import os
import resource
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from datetime import datetime
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from fedpriv.data import cifar10
from fedpriv.errors import FedprivError, require
from fedpriv.papers import claimed_certified, gallery
from fedpriv.papers.child_process import run_command
from fedpriv.papers.hu import noisy_steps, optimality_gap
from fedpriv.papers.huang import claimed_noise, excess_risk
from fedpriv.papers.lowy import error_tradeoff
from fedpriv.papers.lowy.error_tradeoff import Setting
from fedpriv.papers.quick_profiles import profile_words, quick_profiles
from fedpriv.papers.secured_fl import (
    averaging_error,
    peer_accuracy,
    peer_groups,
    peer_leakage,
    peer_tables,
)
from fedpriv.papers.study import study
from fedpriv.papers.uldp_fl import clipping_overhead, group_privacy, protocol_time, record_shares
from fedpriv.reports import privacy_utility
from fedpriv.reports.finished_runs import find_runs
from fedpriv.reports.table_command import Parser
from fedpriv.settings.help import near

Make = Callable[[Path, str], bool]
"""Makes figure.png in a folder with a profile; False when it could not."""


def experiment(*names: str, draw: Callable[..., None], **how: Any) -> Make:
    """Run the sweeps of a figure, which is called as the first of them, and draw from their
    folders."""

    def make(folder: Path, profile: str) -> bool:
        words = profile_words(names[0], profile)
        for name in names:
            if run_command(
                f"experiment={name}", f"hydra.sweep.dir={folder / Path(name).name}", *words
            ):
                return False
        draw(find_runs([folder]), folder / "figure.png", **how)
        return True

    return make


def computed(draw: Callable[[Path, str], Path]) -> Make:
    """A figure that needs no runs."""

    def make(folder: Path, profile: str) -> bool:
        return draw(folder, profile).exists()

    return make


def timing(name: str, draw: Callable[..., None]) -> Make:
    """Time every job of an experiment on private weighting and draw the seconds."""

    def make(folder: Path, profile: str) -> bool:
        draw(protocol_time.run(f"uldp_fl/{name}", folder, profile), folder / "figure.png")
        return True

    return make


def uldp(*names: str, title: str, **how: Any) -> Make:
    """Uldp-FL's pairs of panels."""
    return experiment(
        *(f"uldp_fl/{name}" for name in names), draw=privacy_utility.draw, title=title, **how
    )


def users(config: Mapping[str, Any]) -> str:
    """How records belong to users and silos, as Uldp-FL names it."""
    allocator = config["allocator"]
    kind = allocator["_target_"].rpartition(".")[2].lower()
    labels = allocator.get("labels_per_user")
    return f"{allocator['n_users']:,} users, {kind}" + (
        f", {labels} labels a user" if labels else ""
    )


def silos(config: Mapping[str, Any]) -> str:
    """The same with the number of silos."""
    return f"{config['allocator']['n_silos']} silos, {users(config)}"


PHASES = {25: {"quick": "1,2", "paper": "1,2,3,4,5"}, 50: {"quick": "1,2", "paper": "1,2,5,10"}}
"""SPIDER's q by R."""


def mnist(name: str, rounds: int, cohort: int) -> Make:
    """Lowy et al.'s figures of MNIST; their Local SGD takes as many steps as MB-SGD's batches have
    records."""
    title = f"MNIST odd/even, {cohort} of 25 silos a round, {rounds} rounds"
    steps = {"quick": 20, "paper": {25: 606, 50: 428}[rounds]}
    return error_tradeoff.experiment(
        f"lowy/{name}", Setting(lambda root: title, steps, PHASES[rounds])
    )


def cifar(name: str, rounds: int) -> Make:
    """The same of CIFAR-10."""

    def title(root: str | None) -> str:
        return f"{cifar10.source(root)}, one class a silo, {rounds} rounds"

    steps = {"quick": 5, "paper": {50: 1662, 100: 1175}[rounds]}
    return error_tradeoff.experiment(
        f"lowy/{name}", Setting(title, steps, PHASES[50] | {"quick": "2"})
    )


def tumours(root: str | None) -> str:
    """The title of a figure."""
    return "Wisconsin breast cancer, malignant and benign in two silos, 25 rounds"


LOGISTIC = "logistic regression on Adult, 10 of 16 devices a round"
NETWORK = "neural network on Adult, 10 of 16 devices"

FIGURES: dict[str, Make] = {
    "claimed_certified": computed(claimed_certified.draw),
    "uldp_fl/fig2": computed(group_privacy.draw),
    "uldp_fl/fig4_embedded": uldp("fig4_embedded", title="breast cancer, 50 users, zipf"),
    "uldp_fl/fig4": uldp("fig4", title="creditcard", cell=users),
    "uldp_fl/fig5": uldp("fig5", "fig5_10000", title="MNIST", metric="loss", cell=users),
    "uldp_fl/fig6": uldp("fig6", title="heart disease", cell=users),
    "uldp_fl/fig7": uldp("fig7", title="TCGA-BRCA", cell=users),
    "uldp_fl/fig8": uldp(
        "fig8", title="creditcard, weights by records or equal", metric="loss", cell=silos
    ),
    "uldp_fl/fig10": uldp("fig10", title="creditcard, sampled users", cell=users),
    "uldp_fl/fig10_mnist": uldp("fig10_mnist", title="MNIST, sampled users", cell=users),
    "uldp_fl/fig11": timing("fig11", protocol_time.phases),
    "uldp_fl/fig12": timing("fig12", protocol_time.growth),
    "uldp_fl/fig13": record_shares.draw,
    "uldp_fl/theorem6": computed(clipping_overhead.draw),
    "hu/theory": computed(optimality_gap.draw),
    "hu/fig3": experiment(
        "hu/fig3", draw=noisy_steps.convergence, second="train_loss", title=LOGISTIC
    ),
    "hu/fig4": experiment(
        "hu/fig4", draw=noisy_steps.convergence, second="gradient_norm", title=NETWORK
    ),
    "hu/fig5": experiment(
        "hu/fig5", draw=noisy_steps.comparison, second="train_loss", title=LOGISTIC
    ),
    "hu/fig6": experiment(
        "hu/fig6", draw=noisy_steps.comparison, second="gradient_norm", title=NETWORK
    ),
    "hu/fig7": experiment("hu/fig7", draw=noisy_steps.tradeoff, title=LOGISTIC),
    "hu/fig8": experiment("hu/fig8", draw=noisy_steps.tradeoff, title=NETWORK),
    "huang/excess_risk": excess_risk.draw,
    "huang/claims": experiment("huang/claims", draw=claimed_noise.draw),
    "lowy/fig4": mnist("fig4", 25, 25),
    "lowy/fig5": mnist("fig5", 25, 12),
    "lowy/fig6": cifar("fig6", 50),
    "lowy/fig7": cifar("fig7", 100),
    "lowy/fig8": error_tradeoff.experiment(
        "lowy/fig8",
        Setting(tumours, {"quick": 83, "paper": 83}, {"quick": "1,2,5", "paper": "1,2,3,4,5"}),
    ),
    "lowy/fig9": mnist("fig9", 50, 25),
    "lowy/fig10": mnist("fig10", 50, 12),
    "secured_fl/table1": peer_tables.counts,
    "secured_fl/claims": peer_tables.claims,
    "secured_fl/fig1": peer_groups.partitions,
    "secured_fl/fig2": peer_groups.messages,
    "secured_fl/fig3_femnist": peer_accuracy.methods(
        "secured_fl/fig3_femnist", peer_accuracy.femnist_words
    ),
    "secured_fl/fig3_shakespeare": peer_accuracy.methods("secured_fl/fig3_shakespeare"),
    "secured_fl/fig3_cifar10": peer_accuracy.methods("secured_fl/fig3_cifar10"),
    "secured_fl/fig4": averaging_error.draw,
    "secured_fl/fig5": peer_accuracy.by_iterations,
    "secured_fl/fig6": peer_groups.how_many,
    "secured_fl/leakage": peer_leakage.draw,
    "study/breast_cancer": study.experiment(
        "study/breast_cancer", title="Wisconsin breast cancer, 100 users (zipf), 3 silos"
    ),
    "study/creditcard": study.experiment(
        "study/creditcard",
        title="credit-card payments, 200 users (zipf), 3 silos",
        profiles=study.SHORTER,
    ),
}
DEFAULT = (
    "claimed_certified",
    "uldp_fl/fig2",
    "uldp_fl/fig4_embedded",
    "uldp_fl/theorem6",
    "hu/theory",
    "secured_fl/claims",
    "secured_fl/leakage",
    "study/breast_cancer",
)
"""What `make figures` draws: minutes, and no data set that is not embedded."""


def one_by_one(names: Sequence[str], profile: str) -> Iterator[tuple[str, bool]]:
    """Each figure and whether it was drawn, in their order."""
    for name in names:
        yield name, made(name, profile, _folder(name))


def side_by_side(names: Sequence[str], profile: str, jobs: int) -> Iterator[tuple[str, bool]]:
    """The same in processes that share the processors, as they end; the longest first. What each of
    them says is in its folder's log.txt."""
    os.environ["OMP_NUM_THREADS"] = str(max(1, (os.cpu_count() or 1) // jobs))
    longest = sorted(names, key=lambda name: -quick_profiles()[name].seconds)
    # A process a figure, so that none keeps another's memory.
    with ProcessPoolExecutor(jobs, get_context("spawn"), max_tasks_per_child=1) as pool:
        waiting = {pool.submit(_made_apart, name, profile, _folder(name)): name for name in longest}
        for number, done in enumerate(as_completed(waiting), 1):
            name = waiting[done]
            try:
                drawn = done.result()
            except (
                FedprivError,
                BrokenProcessPool,
            ) as failure:  # the latter: killed, for want of memory or by hand
                print(f"{name}: {failure}", file=sys.stderr)
                drawn = False
            print(
                f"{number} of {len(names)}: {name} {'is drawn' if drawn else 'FAILED'}",
                file=sys.stderr,
            )
            yield name, drawn


def _made_apart(name: str, profile: str, folder: Path) -> bool:
    folder.mkdir(parents=True)
    with (folder / "log.txt").open("w") as log:
        os.dup2(log.fileno(), 1)
        os.dup2(log.fileno(), 2)
        return made(name, profile, folder)


def _folder(name: str) -> Path:
    return Path("outputs") / name / f"{datetime.now():%Y-%m-%d_%H-%M-%S}"


def made(name: str, profile: str, folder: Path) -> bool:
    """Make one figure and note what it took."""
    wall = time.monotonic()
    processor = _processor_seconds()
    if not FIGURES[name](folder, profile):
        return False
    spent = {
        "seconds": time.monotonic() - wall,
        "processor_seconds": _processor_seconds() - processor,
    }
    gallery.about(folder, name, profile=profile, **spent)
    print(folder / "figure.png")
    return True


def _processor_seconds() -> float:
    """Of this process and of those it has waited for."""
    uses = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(use.ru_utime + use.ru_stime for use in uses)


def main(words: list[str]) -> None:
    """Make what the command line names. Raises FedprivError for a figure that does not exist or
    could not be made."""
    parser = Parser(
        "fedpriv reproduce",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("names", nargs="*", default=DEFAULT, help=", ".join(FIGURES))
    parser.add_argument("--profile", choices=("quick", "paper"), default="quick")
    parser.add_argument(
        "--jobs", type=int, default=1, help="figures made side by side, which share the processors"
    )
    args = parser.parse_args(words)
    require(args.jobs >= 1, "--jobs", args.jobs, "a positive number")
    names = [*FIGURES] if args.names == ["all"] else args.names
    for name in names:
        if name not in FIGURES:
            raise FedprivError(
                f"{name}: no such figure; {near(name, FIGURES)}allowed: {', '.join(FIGURES)}"
            )
    how = partial(side_by_side, jobs=args.jobs) if args.jobs > 1 else one_by_one
    failed = [name for name, drawn in how(names, args.profile) if not drawn]
    print(gallery.write(Path("outputs")))
    if failed:
        raise FedprivError(f"not drawn: {', '.join(failed)}")
