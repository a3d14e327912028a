"""How often Python searches for cycles."""

import gc
import subprocess
import sys

from fedpriv.engines.inprocess import OBJECTS, InProcessSession, collect_rarely
from fedpriv.parties.party import Participant, PartySpec


def test_the_first_call_sets_the_threshold_and_ends_it():
    before = gc.get_threshold()
    end = collect_rarely(1000)
    assert gc.get_threshold() == (1000 * OBJECTS, *before[1:])
    second = collect_rarely(10_000)
    second()
    assert gc.get_threshold()[0] == 1000 * OBJECTS
    end()
    assert gc.get_threshold() == before


class Silent(PartySpec, Participant):
    def open(self, memory):
        return self

    def take_part(self, task):
        yield {}


def test_a_session_ends_it_when_it_closes_or_is_forgotten():
    before = gc.get_threshold()
    parties = {str(number): Silent() for number in range(1000)}
    with InProcessSession(parties, {}):
        assert gc.get_threshold()[0] == 1000 * OBJECTS
    assert gc.get_threshold() == before
    forgotten = InProcessSession(parties, {})
    assert gc.get_threshold()[0] == 1000 * OBJECTS
    del forgotten
    assert gc.get_threshold() == before


def test_a_round_of_many_silos_leaves_no_cycles():
    """A search would be needed for each of them: the memory of ten thousand silos would wait."""
    code = """if 1:
        import gc
        from fedpriv.runtime import prepare
        from fedpriv.testing import experiment
        words = ("algo=uldp_avg", "data=artificial", "allocator=equal", "allocator.local_test=0")
        with prepare(experiment(*words, "preset.n_silos=20", "data.size=200")) as run:
            state = run.run_round(run.queries(1), run.state).state
            gc.collect()
            gc.disable()
            run.run_round(run.queries(2), state)
            print(gc.collect())
    """
    found = subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True
    ).stdout
    assert int(found) < 20, found
