"""The silos and parties that a run has lost, as its log and status.json have them."""

from __future__ import annotations

from fedpriv.runs.folder import RunFolder
from fedpriv.runs.status import Status
from fedpriv.runtime import PreparedRun
from fedpriv.util.logs import LOGGER


class Losses:
    """What the processes of a run have lost.

    prepared: the parties of this process.
    folder: of the run.
    before: the status that an earlier process has left; None without one.
    parties: number of a round: name of each party that was lost: why.
    """

    def __init__(self, prepared: PreparedRun, folder: RunFolder, before: Status | None) -> None:
        self.prepared = prepared
        self.folder = folder
        self._left_out = set(before.left_out if before else ())
        lost = before.lost_parties if before else {}
        self.parties = {round: dict(names) for round, names in lost.items()}

    @property
    def left_out(self) -> frozenset[str]:
        """Silos without which this process or an earlier one has sized noise shares."""
        return self.prepared.uncounted.union(self._left_out)

    def note(self) -> None:
        """Write down what was lost since the last call, in the log and in status.json, where the
        losses of earlier processes stay."""
        if self.prepared.uncounted:  # before the next round is charged without them
            self._left_out |= self.prepared.uncounted
            self.folder.status(left_out=sorted(self._left_out))
        losses = self.prepared.standing.losses
        if not losses:
            return
        for round, lost in losses.items():
            for name, why in lost.items():
                LOGGER.warning("round %d: lost %s: %s", round, name, why)
            self.parties.setdefault(str(round), {}).update(lost)
        losses.clear()
        self.folder.status(lost_parties=self.parties)
