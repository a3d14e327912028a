"""Commands that train, or look at data: `fedpriv run` and `fedpriv data`."""

from __future__ import annotations

import math
import os
import re
import shlex
import shutil
import sys
from collections.abc import Callable, Sequence
from copy import deepcopy
from pathlib import Path

from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf

from fedpriv.errors import FedprivError, require
from fedpriv.runs.folder import RunFolder, require_writable
from fedpriv.runs.loop import train
from fedpriv.runs.run_or_resume import early_failures_recorded, resume, run_or_resume
from fedpriv.runs.status import Status
from fedpriv.runs.tables import METRICS
from fedpriv.runtime import DivergedError
from fedpriv.settings.compose import CommandLine, each_job, one_line_errors
from fedpriv.settings.experiment import build
from fedpriv.settings.words import conf_dir, with_listed_seeds
from fedpriv.sweeps.progress import run_line
from fedpriv.sweeps.side_by_side import Job, draw_jobs, own_launcher, own_sweeper, sweep_folder
from fedpriv.util.consoles import wide_console
from fedpriv.util.logs import LOGGER
from fedpriv.util.printing import say


@one_line_errors()
def run(args: list[str]) -> None:
    """Train. A sweep is checked as a whole before its first job starts."""
    args = with_listed_seeds(args)  # Hydra's plug-ins get them as well
    line = CommandLine.parse(args)
    first: DictConfig | None = None
    jobs: list[Job] = []
    sweep: Path | None = None
    for number, config in enumerate(each_job(line, conf_dir())):
        if first is None:
            first = deepcopy(config)
            if line.multirun or config.hydra.mode == RunMode.MULTIRUN:
                sweep = sweep_folder(config)
        jobs.append(Job.of(config, number, sweep))
    assert first is not None
    if first.resume is not None:
        resume(line, str(first.resume), len(jobs))
    elif sweep is None:
        [job] = jobs
        require_writable("hydra.run.dir", job.folder)
        RunFolder(job.folder).require_free()
        folder = job.folder.absolute()  # a note says how to resume it, from anywhere
        train(job.experiment, job.config_yaml, folder, origin=job.origin, words=job.words)
    else:
        require_writable("hydra.sweep.dir", sweep)
        _require_slurm(first)
        launcher = own_launcher(first)
        sweeper = own_sweeper(first)
        if launcher is None:
            own = _own_words(first, args, sweep)
            _sweep(lambda: start_hydra([*args, *own]), sweep, args)
            return
        drawn = draw_jobs(jobs, sweeper, line) if sweeper else jobs
        _sweep(lambda: launcher.launch(drawn), sweep, args)


def _require_slurm(config: DictConfig) -> None:
    """Raise ConfigError where a launcher needs Slurm and there is none."""
    slurm = str(config.hydra.launcher.get("_target_")).endswith("SlurmLauncher")
    allowed = "hydra/launcher=joblib, because this machine has no Slurm (srun)"
    here = not slurm or shutil.which("srun") is not None
    require(here, "hydra/launcher", "submitit_slurm", allowed)


def _own_words(config: DictConfig, args: list[str], sweep: Path) -> list[str]:
    """What Hydra's sweepers are told beside the words that were typed: the folder, which they would
    name by their own start time, and the seed of a search, so that a repeated one continues."""
    seed = "hydra.sweeper.sampler.seed"
    words = _sweep_dir(args, sweep)
    if seed not in _typed(args) and OmegaConf.select(config, seed, default="none") is None:
        words.append(f"{seed}={config.seed}")
    return words


def _typed(args: Sequence[str]) -> set[str]:
    """The keys of the command line."""
    return {word.partition("=")[0].lstrip("+") for word in args}


def _sweep_dir(args: Sequence[str], sweep: Path) -> list[str]:
    """The word that names the sweep's folder, unless `args` have one."""
    if "hydra.sweep.dir" in _typed(args):
        return []
    plain = re.fullmatch(r"[\w./-]+", str(sweep)) is not None
    return [f"hydra.sweep.dir={sweep}" if plain else f"hydra.sweep.dir='{sweep}'"]


def _sweep(launch: Callable[[], None], folder: Path, args: Sequence[str]) -> None:
    """Run a sweep, and print the states of its runs. Raises FedprivError when runs have failed; not
    where some are done and the others have diverged.

    args: words of the command line, with which an interrupted sweep continues.
    """
    from fedpriv.reports.sweep_states import print_sweep  # pandas: not for `fedpriv --help`

    failure: FedprivError | None = None
    try:
        launch()
    except FedprivError as error:
        failure = error
    except KeyboardInterrupt as interrupt:
        command = shlex.join(["fedpriv", *args, *_sweep_dir(args, folder)])
        interrupt.add_note(f"continue with {command}")
        raise
    except Exception:
        print_sweep(folder, wide_console())
        raise
    states = print_sweep(folder, wide_console())
    failed = [state for state in states if state.state != "done"]
    if failed and (failure is not None or len(failed) == len(states)):
        named = "; ".join(f"{state.folder}: {state.reason or state.state}" for state in failed)
        raise FedprivError(f"{len(failed)} of {len(states)} runs failed: {named}") from failure
    if failure is not None:
        raise failure


def start_hydra(args: list[str]) -> None:
    """Hand over to Hydra, for what it answers itself and for its plug-ins, which compose again and
    start the jobs."""
    import hydra

    # Hydra raises exceptions instead of printing them.
    os.environ.setdefault("HYDRA_FULL_ERROR", "1")
    # Its parser takes the settings on one side of -m only.
    sys.argv = [sys.argv[0], *sorted(args, key=lambda word: word not in ("-m", "--multirun"))]
    with one_line_errors():
        hydra.main(version_base="1.3", config_path=str(conf_dir()), config_name="config")(_job)()


def _job(config: DictConfig) -> float:
    """One run of a sweep that a plug-in of Hydra starts, with one line at its end. Returns its last
    main metric, for sweepers that search: -inf for a run that diverges, NaN where it tells none.
    """
    running = HydraConfig.get()
    folder = Path(running.runtime.output_dir)
    settings = OmegaConf.to_yaml(config, resolve=True)
    words = [str(word) for word in running.overrides.task]
    LOGGER.propagate = False  # a launcher's own process would print all that run.log gets
    name = f"#{running.job.num}"
    try:
        with early_failures_recorded(folder, words):
            run_or_resume(build(config), settings, folder, words=words, quiet=True)
    except Exception as error:
        say(run_line(name, folder, words, str(error)), file=sys.stderr, flush=True)
        if isinstance(error, DivergedError):
            return -math.inf
        raise
    if not config.quiet:
        say(run_line(name, folder, words, None), file=sys.stderr, flush=True)
    return float(RunFolder(folder).tables.rows(METRICS)[-1].get(Status.read(folder).metric, "nan"))
