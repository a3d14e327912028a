"""`fedpriv site`: an organisation's own decisions about a study, and its part in it."""

from __future__ import annotations

import argparse
import logging
import signal
import sys
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from fedpriv.accountants.charges import Charge
from fedpriv.accountants.filters import Budget
from fedpriv.accountants.ledger import Ledger, headline
from fedpriv.engines.study import Study
from fedpriv.errors import FedprivError
from fedpriv.rounds.query import events_of
from fedpriv.runtime.run_settings import RunSettings
from fedpriv.runtime.silo_journal import SiloJournal
from fedpriv.sites.site import Site
from fedpriv.util.logs import LOGGER
from fedpriv.util.parsers import Parser, action_parser
from fedpriv.util.printing import say

EPILOG = """\
examples:
  fedpriv site approve site.yaml   # what the study asks and costs; asks before it is allowed
  fedpriv site serve site.yaml     # dials the coordinator and takes part
  fedpriv site status site.yaml
  fedpriv site pause site.yaml     # refuse every round, until fedpriv site resume
"""


def main(args: list[str]) -> None:
    """Run one of the actions. Raises FedprivError."""
    own = _parser().parse_args(args)
    action: Callable[[Site, argparse.Namespace], None] = ACTIONS[own.action][0]
    action(Site.read(own.site), own)


def _approve(site: Site, own: argparse.Namespace) -> None:
    from fedpriv.sites.serve import silo_spec

    study = site.published()
    spec = silo_spec(site, study)
    # What serving takes has to be there before anything is allowed.
    spec.identity.identity()
    _ = site.lines(site.party(study)).own
    for line in _costs(site, study, spec.settings):
        say(line)
    held = spec.data
    say(f"{site.table}: {len(held.users)} users and {len(held.x)} records would train")
    if not own.yes:
        say("type yes to allow this study: ", end="", flush=True)
        if sys.stdin.readline().strip() != "yes":
            say("not allowed")
            return
    site.approve(study)
    say(f"allowed: study {study.digest.hex()[:16]}")


def _costs(site: Site, study: Study, settings: RunSettings) -> list[str]:
    """What a study asks, and the epsilon of each observer, by the site's own accounting."""
    accountant, rounds = settings.accountant, settings.rounds
    ledger = Ledger(accountant)
    for number in range(1, rounds + 1):
        ledger.record(events_of(settings.algo.queries(number, settings.plan)))
    lines = [f"study {study.digest.hex()[:16]}: {' '.join(study.words[:-1])}"]
    rows = ledger.rows(rounds)
    for observer in dict.fromkeys(row.observer for row in rows):
        lines.append(
            f"after {rounds} rounds, seen by the {observer}: epsilon "
            f"{headline(rows, observer):.4g} at delta {accountant.delta:g}"
        )
    return [*lines, f"budget of this site: epsilon {site.budget:g} at delta {site.delta:g}"]


def _status(site: Site, own: argparse.Namespace) -> None:
    study = site.published()
    site.require_approved(study)
    say(f"study {study.digest.hex()[:16]}: allowed{', paused' if site.paused else ''}")
    spent = Counter[Charge]()
    if site.journal.exists():
        try:
            spent = SiloJournal.seen(site.silo, site.journal).spent
        except OSError as error:
            raise FedprivError(f"{site.journal}: {error.strerror}") from error
    epsilon = Budget(site.budget, site.delta).spent(spent)
    say(
        f"{spent.total()} answers, of every study: epsilon {epsilon:.4g} of {site.budget:g} at "
        f"delta {site.delta:g}"
    )


def _serve(site: Site, own: argparse.Namespace) -> None:
    from fedpriv.sites.serve import host_of, serve

    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(asctime)s %(message)s"))
    LOGGER.addHandler(handler)
    LOGGER.setLevel(logging.INFO)
    ended = threading.Event()
    with site.alone():
        host = host_of(site)
        signal.signal(signal.SIGTERM, lambda *_: ended.set())
        LOGGER.info("dialling %s", site.coordinator)
        serve(site, host, ended)


def _pause(site: Site, own: argparse.Namespace) -> None:
    site.pause(own.action == "pause")
    say("paused: every round is refused" if site.paused else "takes part again")


ACTIONS: dict[str, tuple[Callable[[Site, argparse.Namespace], None], str]] = {
    "approve": (_approve, "show what the study asks and costs, and allow it"),
    "serve": (_serve, "take part in the study"),
    "status": (_status, "show what was answered, and what is left"),
    "pause": (_pause, "refuse every round from now on"),
    "resume": (_pause, "take part again"),
}


def _parser() -> Parser:
    about = "An organisation's part in a study of several. Its records stay here."
    parser, action = action_parser("fedpriv site", about, EPILOG)
    for name, (_, text) in ACTIONS.items():
        one = action(name, text)
        one.add_argument("site", type=Path, metavar="FILE", help="the site's file, site.yaml")
        if name == "approve":
            one.add_argument("--yes", action="store_true", help="allow it without asking")
    return parser
