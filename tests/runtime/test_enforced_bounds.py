"""Attacks on what bounds a unit's part in a sum: a server that lies about weights, a method that
repeats a unit."""

from dataclasses import dataclass, fields, replace

import numpy as np
import pytest
from runs import experiment
from totals import total

from fedpriv.algorithms.uldp import UldpAvg
from fedpriv.crypto.signatures import Ed25519Signer
from fedpriv.errors import AggregationAbortedError
from fedpriv.parties.schema import Array
from fedpriv.parties.signer import Checksum
from fedpriv.rounds.contributors import RecordWeighting
from fedpriv.runtime import prepare
from fedpriv.testing.faults import Faulty, alter

CLIP, LIE = 0.3, 1000.0
WORDS = ["algo=uldp_avg", f"algo.clip={CLIP}"]


def lied_to(exp, times=1):
    """The experiment whose server sends silo0 a weight of 1000 for its first user, in the first
    exchanges."""

    def change(message):
        if not isinstance(message.content, np.ndarray):
            return message
        weights = message.content.copy()
        weights[np.flatnonzero(weights)[0]] = LIE
        return replace(message, content=weights)

    lies = (
        alter(change, exchange=number, sender="server", receiver="silo0") for number in range(times)
    )
    return replace(exp, engine=Faulty(exp.engine, tuple(lies)))


WIDE = "aggregation.range=1e4"
"""Lets the attack through where it must be seen; the range of honest messages would stop one this
large."""


@pytest.mark.parametrize("aggregation", ["plain", f"masked {WIDE}", f"secagg {WIDE}"])
def test_a_server_cannot_raise_a_weight_that_is_made_of_counts(aggregation, monkeypatch):
    exp = experiment(*WORDS, "algo.weighting=records", *f"aggregation={aggregation}".split())
    for signer in (Ed25519Signer, Checksum):  # it is the server that lies, and it would sign
        monkeypatch.setattr(signer, "verifies", lambda *_: True)
    with pytest.raises(
        AggregationAbortedError, match="a message of server is refused: a number outside"
    ):
        prepare(lied_to(exp, times=2))  # the first set-up is tried again
    # What the attack does unhindered:
    monkeypatch.setattr(RecordWeighting, "check_row", lambda self, weights, counts: None)
    monkeypatch.setattr(Array, "check", lambda self, message: None)
    apart = total(lied_to(exp), "update", noisy=False) - total(exp, "update", noisy=False)
    assert np.linalg.norm(apart) > 100 * CLIP


@pytest.mark.parametrize("aggregation", ["plain", "masked", "secagg"])
def test_a_server_has_no_say_in_uniform_weights(aggregation):
    exp = experiment(*WORDS, f"aggregation={aggregation}")
    honest, lied = (total(one, "update", noisy=False) for one in (exp, lied_to(exp)))
    np.testing.assert_array_equal(honest, lied)


@dataclass(frozen=True)
class Repeating(UldpAvg):
    """Hands over every user's contribution twice, each within the bound."""

    def local_update(self, silo, query, down):
        update = super().local_update(silo, query, down)
        blocks = [*update.contributions] * 2
        return replace(update, steps=iter(blocks))


def test_a_unit_contributes_once_at_a_silo():
    exp = experiment(*WORDS)
    values = {field.name: getattr(exp.algo, field.name) for field in fields(exp.algo)}
    with pytest.raises(ValueError, match="a unit contributes twice"):
        total(replace(exp, algo=Repeating(**values)), "update", noisy=False)
