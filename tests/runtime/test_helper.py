import numpy as np
import pytest
from queries import query_for

from fedpriv.aggregation.plain import Plain
from fedpriv.parties.signer import CHECKSUM
from fedpriv.rounds.query import Total
from fedpriv.runtime.helper import HelperParticipant


class Done:
    """A protocol that has its sum."""

    signer = CHECKSUM

    def query(self, query, broadcast):
        yield from ()
        return Total(np.zeros(1), ("silo0", "silo1"))


@pytest.mark.parametrize("announces", [True, False])
@pytest.mark.parametrize("stateful", [True, False])
def test_silos_are_told_who_is_in_a_sum_where_they_remember_something_of_it(announces, stateful):
    """By the one helper that tells, and nobody else: silos that remember nothing wait for no such
    message."""
    helper = object.__new__(HelperParticipant)
    helper.name, helper.announces, helper.protocol = "server", announces, Done()
    query = query_for(Plain(), 2)
    object.__setattr__(query, "stateful", stateful)
    sent = [receiver for mail in helper.answer(query, None) for receiver in mail]
    assert set(sent) == ({"silo0", "silo1"} if announces and stateful else set())
