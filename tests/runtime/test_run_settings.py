"""The settings that the parties of one process share."""

import pytest

from fedpriv.errors import RefusedError
from fedpriv.runtime import prepare
from fedpriv.testing import experiment


def test_all_silos_of_a_process_hold_one_tuple_of_names() -> None:
    # Ten thousand copies of ten thousand names took 15 GB.
    with prepare(experiment("algo=uldp_avg", "data=artificial", "preset.n_silos=3")) as run:
        assert run.settings.silos is run.settings.silos
        assert run.silos is run.settings.silos


@pytest.mark.parametrize(
    "present",
    [
        ("silo0", "silo1"),
        ("silo0", "silo1", "silo1"),
        ("silo0", "silo1", "silo9"),
        ("silo0", "silo1", "silo2", "silo3"),
        ("silo0", "silo1", 2),
    ],
)
def test_a_party_refuses_a_set_up_with_other_silos(present: tuple[str, ...]) -> None:
    with prepare(experiment("algo=uldp_avg", "data=artificial", "preset.n_silos=3")) as run:
        run.settings.require_present("silo0", ("silo0", "silo1", "silo2"))
        with pytest.raises(RefusedError, match="silo0 refuses a set-up"):
            run.settings.require_present("silo0", present)
