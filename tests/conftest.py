import os

os.environ.setdefault(
    "OMP_NUM_THREADS", "1"
)  # several workers share the machine, and small kernels wait for threads

import gc
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from absl import logging as absl_logging
from hypothesis import settings
from ray_clusters import cluster, started_cluster  # noqa: F401 (fixtures)
from small_data import write_all

MEMORY = "/dev/shm"
if (
    "TMPDIR" not in os.environ
    and os.access(MEMORY, os.W_OK)
    and not os.statvfs(MEMORY).f_flag & os.ST_NOEXEC  # compiled kernels are loaded from there
    and shutil.disk_usage(MEMORY).free > 4 * 2**30
):
    # A run waits for the disk some twenty times, 6 ms each, and tests make thousands of runs.
    os.environ["TMPDIR"] = tempfile.tempdir = MEMORY

# Whoever configures logging closes every handler, and this one its stream unless that is a standard
# one: not pytest's.
absl_logging.get_absl_handler().python_handler.stream = sys.__stderr__

# The secret that keys digests is of the tests alone, and gone after them.
STATE = tempfile.TemporaryDirectory(prefix="fedpriv-tests-")
os.environ["XDG_STATE_HOME"] = STATE.name

# Machines are noisy: a slow example is no failure. CI repeats the same examples; a developer's run
# looks for new ones.
settings.register_profile("fedpriv", deadline=None, derandomize=bool(os.environ.get("CI")))
settings.load_profile("fedpriv")

FAST = "not slow"
"""The marks of the suite that pyproject.toml asks for."""
SHARED = Path(__file__).resolve().parents[2] / "shared" / "data"


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Import the tests without the collector of garbage, and keep a million objects of theirs out
    of its sight: a full collection takes a second with them, and a few milliseconds without."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.collect()
        gc.freeze()
        gc.enable()


STARTED = time.monotonic()


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """Note the seconds of a whole suite that has passed, for `python -m scripts.size`."""
    config = session.config
    part = config.option.file_or_dir or config.option.keyword or config.option.markexpr != FAST
    cache = getattr(config, "cache", None)
    if exitstatus == 0 and cache is not None and not part and not hasattr(config, "workerinput"):
        cache.set("fedpriv/suite_seconds", time.monotonic() - STARTED)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> object:
    """With `--dist loadgroup`, let one worker run a file's tests, so that what they share is made
    once. Files of one `xdist_group` are together too."""
    if config.getoption("dist") != "loadgroup":
        return None
    from xdist.scheduler import LoadGroupScheduling

    class ByFile(LoadGroupScheduling):
        def _split_scope(self, nodeid: str) -> str:
            scope = super()._split_scope(nodeid)
            return scope.split("::")[0]

    return ByFile(config, log)


@pytest.fixture(scope="session")
def small_root(tmp_path_factory) -> str:
    """A folder with small generated files of every data set, in the official layout."""
    return str(write_all(tmp_path_factory.mktemp("small data")))


@pytest.fixture(scope="session")
def real_root() -> str:
    """The folder with real records, or a skip."""
    folder = Path(os.environ.get("FEDPRIV_DATA") or SHARED)
    if not folder.is_dir():
        pytest.skip("needs real records (FEDPRIV_DATA)")
    return str(folder)


@pytest.fixture
def no_cache(tmp_path, monkeypatch) -> Path:
    """An empty cache and no data folder: the state of a new user. The cache's path."""
    monkeypatch.delenv("FEDPRIV_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "fedpriv"
