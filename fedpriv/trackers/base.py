"""Base classes of trackers, and the context of a run that uses one.

The run's folder stays the record. A tracker that fails is reported, and the run continues. Trackers
show metrics on the test records, as in metrics.csv: they are not private releases.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from omegaconf import OmegaConf

from fedpriv.accountants.ledger import EpsilonRow, headline
from fedpriv.errors import FedprivError
from fedpriv.util.flatten import flat
from fedpriv.util.logs import LOGGER


class Log:
    """The place of one run at a tracker.

    name: a resumed run finds its place by this name.
    """

    name = ""

    def add(self, round: int, values: Mapping[str, float]) -> None:
        """Show the numbers of a round. Epsilons may be infinite."""

    def end(self, state: str) -> None:
        """Close the place. The run is "done", "failed" or "interrupted"."""


@dataclass(frozen=True)
class Tracker:
    """Shows nothing: the run's folder is the only record.

    The base of all trackers. A tracker opens a place for each run, which gets the numbers of the
    evaluated rounds:

    >>> class Printed(Log):
    ...     def add(self, round, values):
    ...         print(round, values["loss"])
    >>> class Printer(Tracker):
    ...     def open(self, folder, config_yaml, *, known, after):
    ...         return Printed()
    >>> Printer().open(Path("outputs"), "seed: 0", known="", after=0).add(1, {"loss": 0.5})
    1 0.5

    package: the Python package that it needs, which is also the name of fedpriv's extra.
    addresses: names of the arguments that say where it connects or writes.
    """

    package: ClassVar[str] = ""
    addresses: ClassVar[tuple[str, ...]] = ()

    def open(self, folder: Path, config_yaml: str, *, known: str, after: int) -> Log:
        """The place of the run in `folder`.

        config_yaml: the run's configuration.
        known: the name of the run's `Log` if it had one before, else empty.
        after: the last completed round; later rounds are shown again.
        """
        return Log()


class _Careful(Log):
    """Passes everything on to another log until that fails. The failure is logged once."""

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
                "the tracker failed (%s: %s) and is not used any more", type(error).__name__, error
            )
            self._log = None


@contextmanager
def tracked(
    tracker: Tracker, folder: Path, config_yaml: str, *, known: str, after: int
) -> Iterator[Log]:
    """Context of a run's `Log`. Closes it with the state of the run.

    Raises FedprivError when it cannot be opened. Later failures do not end the run.
    """
    try:
        log = _Careful(tracker.open(folder, config_yaml, known=known, after=after))
    except FedprivError:
        raise
    except Exception as error:
        raise FedprivError(f"tracker: cannot reach {type(tracker).__name__} ({error})") from error
    state = "failed"
    try:
        yield log
        state = "done"
    except KeyboardInterrupt:
        state = "interrupted"
        raise
    finally:
        log.end(state)


def settings(config_yaml: str) -> dict[str, Any]:
    """The values of a configuration by their keys, joined by dots."""
    tree: Any = OmegaConf.to_container(OmegaConf.create(config_yaml))
    return flat(tree)


def numbers(
    metrics: Mapping[str, Any], rows: Sequence[EpsilonRow], observer: str
) -> dict[str, float]:
    """What a tracker shows of a round: metrics; `epsilon`, the headline epsilon of `observer`; and
    every certificate and claim by observer, unit (with its group), adjacency and method."""
    values = {
        name: float(value)
        for name, value in metrics.items()
        if name != "round" and value is not None
    }
    values["epsilon"] = headline(rows, observer)
    for row in rows:
        unit = f"{row.unit}/{row.group}" if row.group else row.unit
        about = f"{row.observer}/{unit}/{row.adjacency}/{row.method}"
        values[f"certified/{about}"] = row.certified
        if row.claimed is not None:
            values[f"claimed/{about}"] = row.claimed
    return values


def finite(values: Mapping[str, float]) -> dict[str, float]:
    """The finite values, for trackers that cannot draw infinite ones."""
    return {name: value for name, value in values.items() if math.isfinite(value)}
