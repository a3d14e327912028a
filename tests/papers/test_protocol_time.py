import pandas as pd
import pytest

from fedpriv.papers.uldp_fl import protocol_time
from fedpriv.settings.compose import CommandLine, compose_jobs, without_hydra
from fedpriv.settings.experiment import build
from fedpriv.settings.words import conf_dir


def test_steps_are_added_up_by_phase():
    setup = [(0, 0, "server", 1), (0, 0, "silo0", 2), (0, 2, "silo1", 4)]
    setup += [(0, 4, "silo0", 8), (0, 5, "server", 16)]
    steps = [(0, "server", 1, 0), (0, "silo0", 2, 0), (1, "silo1", 4, 1), (1, "silo0", 6, 5)]
    queries = [(n, *each) for n in (1, 2) for each in (*steps, (2, "server", 3, 0))]
    rows = [*((*each, 0) for each in setup), *queries]
    columns = ["exchange", "step", "party", "seconds", "training"]
    assert protocol_time.by_phase(pd.DataFrame(rows, columns=columns)) == {
        protocol_time.KEYS: 4.0,
        protocol_time.BLINDING: 20.0,
        protocol_time.TRAINING: 3.0,
        protocol_time.WEIGHTING: 3.0,
        protocol_time.DECRYPTION: 4.0,
    }


@pytest.mark.parametrize("name", ["fig11", "fig12"])
def test_a_small_job_takes_time_in_every_phase(name, small_root):
    words = [
        f"experiment=uldp_fl/{name}",
        "seed=0",
        "rounds=1",
        "allocator.n_users=4",
        "aggregation.key_bits=512",
    ]
    words += ["aggregation.n_max=150", "aggregation.count_cap=5", "algo.local_epochs=1"]
    words += [f"data.root={small_root}"] if name == "fig11" else ["model.hidden=[2]"]
    config = compose_jobs(CommandLine.parse(words), conf_dir())[0]
    seconds = protocol_time.measure(build(without_hydra(config)))
    assert list(seconds) == [*protocol_time.PHASES, *protocol_time.PHE]
    assert all(spent > 0 for spent in seconds.values())
