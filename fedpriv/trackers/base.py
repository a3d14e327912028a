"""What a tracker is. The run's folder stays the record; a tracker that fails is reported and ends
no run.

Whatever reads a tracker reads metrics on the test records, as metrics.csv has them: they are no
private release.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from fedpriv.accountants.ledger import EpsilonRow, headline
from fedpriv.errors import FedprivError, require
from fedpriv.util.flatten import flat
from fedpriv.util.logs import LOGGER


class Log:
    """One run's place with a tracker.

    name: what the same run finds its place by when it is resumed.
    """

    name = ""

    def add(self, round: int, values: Mapping[str, float]) -> None:
        """Show the numbers of a round."""

    def end(self, state: str) -> None:
        """Nothing more will come; the run is "done", "failed" or "interrupted"."""


@dataclass(frozen=True)
class Tracker:
    """None: the folder is all there is."""

    def check(self) -> None:
        """Raises ConfigError when what it needs is not installed."""

    def open(self, folder: Path, config_yaml: str, *, known: str, after: int) -> Log:
        """The place of the run in `folder`.

        known: the name of its `Log` if it had one before, else empty.
        after: the last round that it has behind it; later ones are shown again.
        """
        return Log()


class _Careful(Log):
    """Hands on to another one until that fails, which is logged once."""

    def __init__(self, log: Log) -> None:
        self._log: Log | None = log
        self.name = log.name

    def add(self, round: int, values: Mapping[str, float]) -> None:
        self._try("add", round, values)

    def end(self, state: str) -> None:
        self._try("end", state)

    def _try(self, what: str, *arguments: Any) -> None:
        if self._log is None:
            return
        try:
            getattr(self._log, what)(*arguments)
        except Exception as error:
            LOGGER.warning(
                "the tracker has failed (%s: %s) and gets nothing more", type(error).__name__, error
            )
            self._log = None


@contextmanager
def tracked(
    tracker: Tracker, folder: Path, config_yaml: str, *, known: str, after: int
) -> Iterator[Log]:
    """Context of a run's `Log`, which is told how the run has ended. Raises FedprivError when it
    cannot be opened; later failures end nothing."""
    try:
        log = _Careful(tracker.open(folder, config_yaml, known=known, after=after))
    except FedprivError:
        raise
    except Exception as error:
        raise FedprivError(
            f"tracker: {type(tracker).__name__} cannot be reached ({error})"
        ) from error
    state = "failed"
    try:
        yield log
        state = "done"
    except KeyboardInterrupt:
        state = "interrupted"
        raise
    finally:
        log.end(state)


def require_installed(package: str) -> None:
    """Raises ConfigError when the package of this tracker, which names the extra too, is not
    there.
    """
    require(
        find_spec(package) is not None,
        "tracker",
        package,
        f"needs its package: pip install 'fedpriv[{package}]'",
    )


def settings(config_yaml: str) -> dict[str, Any]:
    """A configuration's values by dotted key."""
    from omegaconf import OmegaConf

    tree: Any = OmegaConf.to_container(OmegaConf.create(config_yaml))
    return flat(tree)


def numbers(
    metrics: Mapping[str, Any], rows: Sequence[EpsilonRow], observer: str
) -> dict[str, float]:
    """What a tracker shows of a round: its metrics, `epsilon` as in the table on the screen
    (against `observer`), and every certificate and claim by observer, unit, adjacency and
    method."""
    values = {
        name: float(value)
        for name, value in metrics.items()
        if name != "round" and value is not None
    }
    values["epsilon"] = headline(rows, observer)
    for row in rows:
        about = f"{row.observer}/{row.unit}/{row.adjacency}/{row.method}"
        values[f"certified/{about}"] = row.certified
        if row.claimed is not None:
            values[f"claimed/{about}"] = row.claimed
    return values


def finite(values: Mapping[str, float]) -> dict[str, float]:
    """Without the infinite ones, for trackers that draw none: an infinite epsilon is no curve."""
    return {name: value for name, value in values.items() if math.isfinite(value)}
