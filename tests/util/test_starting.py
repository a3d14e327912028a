"""Modules that a command imports late, in processes of their own."""

import gc
import subprocess
import sys

import pytest

from fedpriv.util.starting import garbage_kept

START = """
import sys
from fedpriv.util.starting import import_events_alone
import_events_alone()
"""


def python(code):
    done = subprocess.run(
        [sys.executable, "-c", START + code], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_events_load_nothing_else():
    python(
        "import dp_accounting as dp\n"
        "from dp_accounting import GaussianDpEvent, dp_event\n"
        "from dp_accounting.dp_event import ComposedDpEvent\n"
        "assert dp.GaussianDpEvent is dp_event.GaussianDpEvent is GaussianDpEvent\n"
        "assert 'scipy' not in sys.modules\n"
        "assert not hasattr(dp, '__wrapped__') and 'scipy' not in sys.modules\n"
        "assert isinstance(dp.GaussianDpEvent(1.0), dp.DpEvent)\n"
    )


@pytest.mark.parametrize(
    "use",
    [
        "dp.NeighboringRelation",
        "dp.pld.PLDAccountant",
        "__import__('dp_accounting.privacy_accountant')",
        "__import__('dp_accounting.pld.privacy_loss_distribution')",
        "__import__('dp_accounting.rdp')",
        "__import__('dp_accounting.mechanism_calibration')",
    ],
)
def test_any_other_use_loads_the_package_once_with_the_same_events(use):
    python(
        "import dp_accounting as dp\n"
        "event = dp.GaussianDpEvent(2.0)\n"
        f"{use}\n"
        "import pickle\n"
        "import dp_accounting\n"
        "from dp_accounting.privacy_accountant import NeighboringRelation\n"
        "from dp_accounting.pld import PLDAccountant\n"
        "assert dp_accounting is sys.modules['dp_accounting'] is dp\n"
        "assert dp_accounting.__file__ and dp_accounting.GaussianDpEvent is type(event)\n"
        "relation = dp_accounting.NeighboringRelation\n"
        "assert NeighboringRelation is relation is dp.NeighboringRelation\n"
        "assert PLDAccountant is dp_accounting.pld.PLDAccountant\n"
        "assert pickle.loads(pickle.dumps(event)) == event\n"
        "accountant = PLDAccountant()\n"
        "accountant.compose(event)\n"
        "assert 1 < accountant.get_epsilon(1e-5) < 3\n"
    )


def test_threads_that_ask_at_once_all_get_the_whole_package():
    python(
        "import threading\n"
        "import dp_accounting as dp\n"
        "found = []\n"
        "together = threading.Barrier(8)\n"
        "def ask():\n"
        "    together.wait()\n"
        "    found.append(dp.NeighboringRelation.REPLACE_ONE)\n"
        "threads = [threading.Thread(target=ask) for _ in range(8)]\n"
        "for thread in threads: thread.start()\n"
        "for thread in threads: thread.join()\n"
        "assert len(found) == 8 and len(set(map(id, found))) == 1\n"
    )


def test_a_package_that_is_loaded_stays():
    done = subprocess.run(
        [sys.executable, "-c", f"import dp_accounting\n{START}assert dp_accounting.__file__"],
        check=False,
    )
    assert done.returncode == 0


def test_garbage_is_collected_again_afterwards():
    assert gc.isenabled()
    with garbage_kept():
        assert not gc.isenabled()
        with garbage_kept():
            pass
        assert not gc.isenabled()
    assert gc.isenabled()
