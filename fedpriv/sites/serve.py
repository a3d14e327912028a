"""Take part in a study: make the silo of a site, and answer the coordinator."""

from __future__ import annotations

import math
import threading

from fedpriv.accountants.filters import Budget
from fedpriv.accountants.ledger import Ledger
from fedpriv.crypto.key_files import KeyFiles
from fedpriv.engines.site_lines import dial
from fedpriv.engines.sites import COORDINATOR
from fedpriv.engines.study import Study
from fedpriv.errors import require
from fedpriv.ledgers.counted_lines import CountedFile
from fedpriv.parties.party import silo_name
from fedpriv.rounds.query import events_of
from fedpriv.runtime.own_records import published_federation, site_records
from fedpriv.runtime.prepare import initial_network, planned, resolve_device, settings_of
from fedpriv.runtime.run_settings import RunSettings
from fedpriv.runtime.silo import SiloSpec
from fedpriv.settings.experiment import Experiment
from fedpriv.sites.host import SiteHost
from fedpriv.sites.site import Site
from fedpriv.util.logs import LOGGER


def site_settings(exp: Experiment, study: Study) -> RunSettings:
    """The site's own copy of the run's settings, from what the study publishes. Raises FedprivError
    for a study that sites cannot carry."""
    network, _ = initial_network(exp, "cpu")
    plan = planned(exp, published_federation(exp, study), network.module)
    queries = [query for number in (1, 2) for query in exp.algo.queries(number, plan)]
    kept = any(query.asked.stateful or query.mechanism.mixing is not None for query in queries)
    name = type(exp.algo).__name__
    require(not kept, "algo", name, "a method without memory at the silos, in a study of sites")
    settings = settings_of(exp, plan, study)
    ledger = Ledger(exp.accountant)
    ledger.record(events_of(settings.algo.queries(1, plan)))
    for row in ledger.rows(1):
        finite = math.isfinite(row.certified)
        require(finite, "algo", name, f"settings with an epsilon against the {row.observer}")
    return settings


def silo_spec(site: Site, study: Study) -> SiloSpec:
    """The silo of a site, from its own files. Raises FedprivError."""
    exp = site.experiment(study)
    party = site.party(study)
    return SiloSpec(
        index=[*study.users].index(site.silo),
        data=site_records(exp, study, site.silo, site.table),
        network=initial_network(exp, "cpu")[0],
        task=exp.data.task,
        settings=site_settings(exp, study),
        identity=KeyFiles(party, site.keys, site.roster),
        device=resolve_device("cpu"),
        execution=exp.options.execution,
        journal=CountedFile(str(site.journal)),
        budget=Budget(site.budget, site.delta),
    )


def host_of(site: Site) -> SiteHost:
    """The silo of a site, ready to answer. Raises FedprivError for a study that is not approved,
    and for files that do not fit it."""
    study = site.published()
    site.require_approved(study)
    return SiteHost(silo_spec(site, study), lambda: site.paused)


def serve(site: Site, host: SiteHost, until: threading.Event) -> None:
    """Dial the coordinator and answer it, until the event is set."""
    dial(
        site.coordinator,
        COORDINATOR,
        site.lines(silo_name(host.spec.index)),
        host.answer,
        computing=lambda: host.computing,
        say=lambda line: LOGGER.info("%s: %s", site.coordinator, line),
        until=until,
    )
