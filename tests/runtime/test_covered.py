"""A sum that covers other silos than its noise is sized for is released by nobody."""

from dataclasses import dataclass, replace

import numpy as np
import pytest
from runs import experiment

from fedpriv.aggregation.plain import Plain, PlainServer
from fedpriv.rounds.query import Total
from fedpriv.runtime import prepare


@dataclass(frozen=True)
class Careless(Plain):
    """Says that its sum covers the silos at `places` of those invited, whatever is in it."""

    places: tuple[int, ...] = (0, 1, 2)

    def helper(self, name, silos, weighting):
        return CarelessServer(silos, weighting, self.places)


class CarelessServer(PlainServer):
    def __init__(self, silos, weighting, places):
        super().__init__(silos, weighting)
        self.places = places

    def query(self, query, broadcast):
        total = yield from super().query(query, broadcast)
        return Total(total.vector, tuple(total.silos[place] for place in self.places))


def one_round(places):
    with prepare(
        replace(experiment("algo=uldp_avg"), aggregation=Careless(places=places))
    ) as prepared:
        start = prepared.state
        return start.params, prepared.run_round(prepared.queries(1), start)


def test_a_sum_over_all_silos_is_applied():
    before, result = one_round((0, 1, 2))
    assert result.aborted is None
    assert not np.array_equal(before, result.state.params)


@pytest.mark.parametrize(("places", "covered"), [((0, 1), 2), ((0, 1, 1), 2), ((), 0)])
def test_a_sum_that_lacks_a_noise_share_changes_nothing(places, covered):
    before, result = one_round(places)
    assert result.aborted == f"the sum covers {covered} silos instead of 3"
    np.testing.assert_array_equal(before, result.state.params)
