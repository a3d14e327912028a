"""A study of three hospitals on this machine: their tables, keys and files."""

import contextlib
import csv
import datetime
import random
import socket
import threading
from dataclasses import dataclass, field
from pathlib import Path

import yaml
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization

from fedpriv.cli import main
from fedpriv.crypto.certificates import new_certificate
from fedpriv.engines.site_lines import dial
from fedpriv.engines.sites import COORDINATOR
from fedpriv.sites.serve import host_of, serve
from fedpriv.sites.site import Site

SILOS = ("east", "north", "west")
USERS = (9, 7, 8)
WORDS = (
    *("algo=uldp_avg", "data=table", "data.schema=schema.yaml", "data.user_scope=silo"),
    *("algo.noise_multiplier=1", "rounds=3"),
)
SCHEMA = {
    "schema": "fedpriv table 1",
    "public": True,
    "user": {"column": "patient", "number": sum(USERS)},
    "silo": {"column": "hospital", "names": [*SILOS]},
    "label": {"column": "died", "problem": "classification", "classes": ["no", "yes"]},
    "features": {"age": {"range": [0, 100]}, "dose": {"range": [-5, 5]}},
}


@dataclass
class Federation:
    """A folder with a study and three sites.

    words: of the coordinator's command line.
    """

    folder: Path
    settings: tuple[str, ...] = ()
    simulation: bool = True
    port: int = 0
    budget: float = 20.0
    words: list[str] = field(default_factory=list)

    def __post_init__(self):
        rows = [*rows_of_all()]
        write_table(self.folder / "all.csv", rows)
        write_yaml(self.folder / "schema.yaml", SCHEMA)
        own = {word.partition("=")[0] for word in self.settings}
        usual = [word for word in WORDS if word.partition("=")[0] not in own]
        study = {
            "study": "fedpriv study 1",
            "settings": [*usual, *self.settings],
            "users": dict(zip(SILOS, USERS)),
        }
        write_yaml(self.folder / "study.yaml", study)
        keys, certificates = self.folder / "keys", self.folder / "certificates"
        parties = [f"silo{index}" for index in range(len(SILOS))]
        roster = str(self.folder / "roster.csv")
        main(["keys", "new", "server", *parties, "--keys", str(keys), "--roster", roster])
        for name in ("coordinator", *parties):
            new_certificate(name, keys, certificates)
        for name in SILOS:
            write_table(self.folder / f"{name}.csv", [row for row in rows if row[1] == name])
            write_yaml(self.folder / f"{name}.yaml", self.site_file(name))
        self.words = [
            *("engine=sites", f"engine.study={self.folder}/study.yaml"),
            *(f"engine.listen=localhost:{self.port}", f"engine.certificates={certificates}"),
            *(f"engine.roster={roster}", f"engine.keys={keys}", "engine.waiting=60", "quiet=true"),
        ]

    def site_file(self, name):
        return {
            "study": "study.yaml",
            "silo": name,
            "table": f"{name}.csv",
            "coordinator": f"localhost:{self.port}",
            "keys": "keys",
            "roster": "roster.csv",
            "certificates": "certificates",
            "folder": f"state_{name}",
            "budget": self.budget,
            "simulation": self.simulation,
        }

    def site(self, name):
        return Site.read(self.folder / f"{name}.yaml")

    def host(self, name):
        """The silo of a site, which has approved the study."""
        site = self.site(name)
        site.approve(site.published())
        return host_of(site)

    @contextlib.contextmanager
    def serving(self, *names):
        """The sites of these names take part, in threads of this process."""
        ended = threading.Event()
        hosts = {name: self.host(name) for name in names}
        threads = [
            threading.Thread(target=serve, args=(self.site(name), host, ended))
            for name, host in hosts.items()
        ]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            ended.set()
            for thread in threads:
                thread.join()
            for host in hosts.values():
                host.close()

    def dial(self, name, answer, ended):
        """As `serve`, with another answer to frames. A site that has no answer yet is at work."""
        site = self.site(name)
        lines = site.lines(site.party(site.published()))
        always = {"computing": lambda: True, "say": str, "until": ended}
        dial(site.coordinator, COORDINATOR, lines, answer, **always)


def with_dates(certificate, key, first, last):
    """Replace a certificate by the same one that is valid from the first to the last of these days,
    counted from now."""
    old = x509.load_pem_x509_certificate(certificate.read_bytes())
    secret = serialization.load_pem_private_key(key.read_bytes(), None)
    now = datetime.datetime.now(datetime.UTC)
    new = x509.CertificateBuilder(
        *(old.issuer, old.subject, old.public_key(), old.serial_number),
        *(now + datetime.timedelta(days=days) for days in (first, last)),
        [*old.extensions],
    ).sign(secret, hashes.SHA256())
    certificate.write_bytes(new.public_bytes(serialization.Encoding.PEM))


def free_port():
    with socket.socket() as one:
        one.bind(("localhost", 0))
        return one.getsockname()[1]


def rows_of_all():
    """Patients of all hospitals, in an order that mixes them."""
    coins = random.Random(0)
    rows = []
    for hospital, users in zip(SILOS, USERS):
        for user in range(users):
            for _ in range(3):
                age, dose = coins.randint(20, 90), round(coins.uniform(-4, 4), 2)
                died = "yes" if age / 50 + dose / 4 + coins.gauss(0, 0.3) > 1.2 else "no"
                rows.append([f"{hospital[0]}{user:02}", hospital, age, dose, died])
    coins.shuffle(rows)
    return rows


def write_table(path, rows):
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([["patient", "hospital", "age", "dose", "died"], *rows])


def write_yaml(path, values):
    path.write_text(yaml.safe_dump(values, sort_keys=False))
