"""A pytest plug-in: claims as tests, and a budget for a test that trains.

Files that end in `.claim.yaml` are collected. Each passes if all its statements hold, and fails
with what `fedpriv certify` prints. `fedpriv_budget` in pytest's settings is the largest certified
epsilon.

    @pytest.mark.privacy_budget(epsilon=3.0, delta=1e-5)
    def test_training(): ...

fails before the step of Opacus or Flower that would exceed the budget, and also if no noised step
was seen at all: a training that is not private spends any budget.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from fedpriv.errors import FedprivError

ENDING = ".claim.yaml"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the setting of the largest epsilon."""
    parser.addini("fedpriv_budget", "largest certified epsilon of a *.claim.yaml", default="")


def pytest_configure(config: pytest.Config) -> None:
    """Make the marker known."""
    config.addinivalue_line(
        "markers",
        "privacy_budget(epsilon, delta): stop a private training before it exceeds the budget",
    )


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> pytest.Collector | None:
    """Collect claim files."""
    if file_path.name.endswith(ENDING):
        return ClaimFile.from_parent(parent, path=file_path)
    return None


class ClaimDoesNotHold(Exception):
    """A statement of a claim does not hold; args: what to print."""


class ClaimFile(pytest.File):
    """A claim file with its one test."""

    def collect(self) -> Iterator[pytest.Item]:
        """The test of the whole file."""
        yield ClaimTest.from_parent(self, name="holds")


class ClaimTest(pytest.Item):
    """Passes if all statements of a claim hold, within the budget."""

    def runtest(self) -> None:
        """Judge the claim."""
        from fedpriv.claims.command import budget_of, failures
        from fedpriv.claims.reading import read
        from fedpriv.claims.report import notes
        from fedpriv.claims.verdicts import judge

        claim = read(self.path)
        findings = judge(claim)
        budget = budget_of(self.config.getini("fedpriv_budget") or None, "fedpriv_budget")
        late = failures(claim, findings, budget)
        if late:
            explained = [line for finding in findings for line in notes(finding)]
            raise ClaimDoesNotHold("\n".join([*late, *explained]))

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException]) -> str:  # type: ignore[override]
        """What to print, without a traceback into fedpriv."""
        if isinstance(excinfo.value, (ClaimDoesNotHold, FedprivError)):
            return str(excinfo.value)
        return str(super().repr_failure(excinfo))

    def reportinfo(self) -> tuple[Path, int | None, str]:
        """Where the test stands."""
        return self.path, None, f"claim {self.path.name}"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    """Record a marked test under its budget."""
    marker = item.get_closest_marker("privacy_budget")
    if marker is None:
        yield
        return
    from fedpriv.claims.recording.record import record

    with record(*_budget(*marker.args, **marker.kwargs)) as recording:
        yield
    if not recording.steps:
        raise FedprivError("privacy_budget: the test added no noise that was seen")


def _budget(epsilon: float, delta: float) -> tuple[float, float]:
    """What the marker says; TypeError if it says less."""
    return epsilon, delta
