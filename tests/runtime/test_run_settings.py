"""The settings that the parties of one process share."""

from fedpriv.runtime import prepare
from fedpriv.testing import experiment


def test_all_silos_of_a_process_hold_one_tuple_of_names() -> None:
    # Ten thousand copies of ten thousand names took 15 GB.
    with prepare(experiment("algo=uldp_avg", "data=artificial", "preset.n_silos=3")) as run:
        names = run.settings.silos
        assert run.silos is names
        for silo in map(run.session.participants.get, names):
            assert silo.present is silo.protocol.silos is names
