"""What holds against a server that cheats.

It chooses every broadcast and every sample of users after all that it has seen, differently for
each silo if it likes. It leaves silos out, passes over rounds and abandons them. Silos follow the
protocol. From their own settings, and from nothing that the server says, they take the rounds and
queries, weights, bounds, noise shares and cohorts; each answers a query once, in ascending order
(`fedpriv.runtime.silo`). The sums of masked and secagg are over whole cohorts alone
(`fedpriv.aggregation.secagg.threat_model`); elsewhere the server sees each message.

So the server picks one function of the records after the other. Each release is a mechanism whose
distance and noise are fixed, whichever function it picks: that of the event against a server that
follows the protocol, if every user is taken to be in the sample. Releases that are left out cost
nothing, and fixed events compose over functions that are chosen adaptively. Within a query, silos
that see different broadcasts add vectors within the same bounds; a server of single messages may
choose one silo's broadcast after another's answer, and Gaussian messages compose like one Gaussian,
Laplace messages like one whose distance is the sum of theirs.

What a silo tells beside its messages, such as diagnostics, times and errors, is in no certificate.
"""

from __future__ import annotations

from fedpriv.certificates.request import Request
from fedpriv.rounds.contributors import Contributors
from fedpriv.rounds.plan import Plan

ANYTHING = (
    "silos follow the protocol, and the server may send each of them anything, leave silos out "
    "and abandon rounds"
)
"""Assumption of a certificate against a server that cheats."""
HONEST = "nothing is certified against a server that cheats"
"""Begins the assumption of the server's certificate that says why there is no other."""


def trusted_with(
    request: Request, plan: Plan, contributors: Contributors, authors: tuple[str, ...]
) -> str | None:
    """Why a query's events need a server that follows the protocol; None if they do not."""
    parameters = plan.query_parameters[request.name]
    if plan.threat_model.cheating is not None:
        return plan.threat_model.cheating
    if contributors.weighting.needs_counts:
        return "it hands out the weights"
    if request.stateful or parameters.mechanism.mixing is not None:
        return "silos remember what it says of earlier sums"
    if not request.noise.enforced and authors:
        return f"the noise is the word of {', '.join(authors)}"
    spare = len(request.silos(plan)) - request.sum_of(plan)
    if spare != parameters.n_invited - parameters.n_summed:
        return "the method asks for sums of another size than silos insist on"
    return request.noise.trusts
