"""A site: where an organisation keeps what it needs for a study, and what it has decided.

A file of plain YAML, on the site's machine, whose paths start from the file's folder:

    study: study/study.yaml
    silo: cleveland
    table: patients.csv
    coordinator: coordinator.example.org:8443
    keys: keys
    roster: roster.csv
    certificates: certificates
    folder: state
    budget: 3
    delta: 1.0e-5
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import yaml

from fedpriv.accountants.filters import Budget
from fedpriv.engines.site_lines import Certificates
from fedpriv.engines.study import Study
from fedpriv.errors import ConfigError, FedprivError, require
from fedpriv.parties.party import silo_name
from fedpriv.settings.compose import CommandLine, compose_jobs
from fedpriv.settings.experiment import Experiment, build
from fedpriv.settings.words import conf_dir
from fedpriv.util.durable_files import replace_file
from fedpriv.util.file_locks import lock
from fedpriv.util.untrusted_files import (
    SETTINGS_BYTES,
    as_type,
    read_bytes,
    read_plain_values,
    reason_of,
)

PATHS = ("study", "table", "keys", "roster", "certificates", "folder")
APPROVED, PAUSED, JOURNAL, SERVING = "approved.txt", "paused", "journal.txt", "serving"


@dataclass(frozen=True)
class Site:
    """A site as its file says it.

    study: file of the study.
    silo: name of its silo in the study's schema.
    table: its records.
    coordinator: host and port that it dials.
    keys: folder with its private keys: of messages (siloN.key) and of lines (siloN.tls).
    roster: file with all parties' verification keys, which it has checked itself.
    certificates: folder with the certificates of the coordinator and of itself.
    folder: where it keeps its journal and its decisions.
    budget: the most that all studies on this table may cost together, as an epsilon.
    delta: of the budget.
    simulation: whether it takes part in seeded rounds too, which protect nobody.
    """

    study: str
    silo: str
    table: str
    coordinator: str
    keys: str
    roster: str
    certificates: str
    folder: str
    budget: float
    delta: float = 1e-5
    simulation: bool = False

    @staticmethod
    def read(path: Path) -> Site:
        """The site in a file. Raises FedprivError with one line that names the file and the
        key."""
        try:
            values = read_plain_values(path)
            known = {one.name for one in fields(Site)}
            if unknown := sorted(values.keys() - known if isinstance(values, dict) else ()):
                raise ValueError(f"unknown key {unknown[0]:.60}")
            site: Site = as_type(Site, values)
            Budget(site.budget, site.delta)
        except (OSError, ValueError, yaml.YAMLError, ConfigError) as error:
            raise FedprivError(f"{path}: not a readable site: {reason_of(error)}") from error
        root = path.resolve().parent
        paths: Any = {key: str(root / getattr(site, key)) for key in PATHS}
        return replace(site, **paths)

    def published(self) -> Study:
        """The study. Raises FedprivError for one that cannot be read, or without this silo."""
        study = Study.read(Path(self.study))
        if self.silo not in study.users:
            raise FedprivError(f"{self.study}: has no silo {self.silo}")
        return study

    def experiment(self, study: Study) -> Experiment:
        """The study's experiment, of classes of this package alone. Raises FedprivError."""
        [config] = compose_jobs(CommandLine.parse([*study.words]), conf_dir())
        experiment = build(config, trust_code=False)
        private = experiment.options.system or self.simulation
        require(private, "randomness", "simulation", "system, for records of persons")
        return experiment

    def party(self, study: Study) -> str:
        """The name of its silo as a party."""
        return silo_name([*study.users].index(self.silo))

    def lines(self, party: str) -> Certificates:
        """Its TLS key, and the certificates that it knows."""
        return Certificates(party, Path(self.keys) / f"{party}.tls", Path(self.certificates))

    @property
    def _approved(self) -> Path:
        return Path(self.folder) / APPROVED

    @property
    def journal(self) -> Path:
        """The file of all answers, of every study on this table."""
        return Path(self.folder) / JOURNAL

    @property
    def paused(self) -> bool:
        """Whether it refuses every round for now."""
        return (Path(self.folder) / PAUSED).exists()

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Context of the one process that serves it. Raises FedprivError if there is another."""
        Path(self.folder).mkdir(mode=0o700, parents=True, exist_ok=True)
        with (Path(self.folder) / SERVING).open("wb") as file:
            try:
                lock(file.fileno())
            except BlockingIOError as error:
                raise FedprivError(f"{self.folder}: another process serves this site") from error
            yield

    def pause(self, paused: bool) -> None:
        """Refuse every round from now on, or no longer."""
        place = Path(self.folder) / PAUSED
        if paused:
            place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            place.touch()
        else:
            place.unlink(missing_ok=True)

    def approve(self, study: Study) -> None:
        """Allow this study, and no other."""
        self._approved.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        replace_file(self._approved, f"{study.digest.hex()}\n".encode(), mode=0o600)

    def require_approved(self, study: Study) -> None:
        """Raise ConfigError for a study that the site has not approved as it is now."""
        known = []
        if self._approved.exists():
            known = read_bytes(self._approved, SETTINGS_BYTES).decode(errors="replace").split()
        advice = "a study that `fedpriv site approve` has shown and allowed, unchanged"
        if study.digest.hex() not in known:
            raise ConfigError("study", self.study, advice)
