"""On a GPU a certificate that takes equal rounding for granted makes no run valid."""

from dataclasses import replace
from types import SimpleNamespace

import pytest
from command import run, success
from fake_runs import read_status
from interrupted import WORDS, Death, dies_in, run_or_resume
from runs import experiment

from fedpriv.accountants.events import RELEASED_MODEL
from fedpriv.accountants.ledger import EpsilonRow
from fedpriv.certificates.derive import ROUNDED_ALIKE
from fedpriv.runs.checkpoint import Checkpoint
from fedpriv.runs.folder import CHECKPOINT
from fedpriv.runs.records import ON_A_GPU
from fedpriv.runs.release import is_private
from fedpriv.runs.status import STATUS
from fedpriv.runtime import prepare

ROW = EpsilonRow(1, RELEASED_MODEL, "record", "add or remove", "pld", 1.0, None)


@pytest.mark.parametrize("devices", [["cpu"], ["cuda"], ["cuda:1"], ["cpu", "cuda"], ["unknown"]])
def test_rounding_counts_where_a_round_ran_on_a_gpu(devices):
    exp = experiment("randomness=system")
    mechanism = SimpleNamespace(clips=True)
    plan = SimpleNamespace(query_parameters={"": SimpleNamespace(mechanism=mechanism)})
    prepared = SimpleNamespace(plan=plan)
    rounded = replace(ROW, assumptions=(ROUNDED_ALIKE,))
    assert is_private(exp, prepared, [ROW], devices)
    assert is_private(exp, prepared, [rounded], devices) == (devices == ["cpu"])
    assert is_private(exp, prepared, [rounded, ROW], devices)


def test_a_run_keeps_the_devices_of_its_earlier_rounds(tmp_path):
    """Else a run that began on a GPU and ends on a processor would be valid."""
    words = ("algo=uldp_avg", "data=breast_cancer", "preset.n_users=8", "preset.local_epochs=1")
    folder = tmp_path / "run"
    first = (*words, "randomness=system", "rounds=1", f"hydra.run.dir={folder}")
    assert run(*first, cwd=tmp_path).returncode == 0
    assert read_status(folder)["devices"] == ["cpu"]
    assert ON_A_GPU not in read_status(folder)["not_covered"]
    kept = Checkpoint.read(folder / CHECKPOINT)
    on_a_gpu = replace(kept, identity={**kept.identity, "devices": "cuda"})
    (folder / CHECKPOINT).write_bytes(on_a_gpu.packed())
    success(f"resume={folder}", "rounds=2", cwd=tmp_path)
    status = read_status(folder)
    assert status["devices"] == ["cpu", "cuda"]
    assert ON_A_GPU in status["not_covered"]


def test_a_device_counts_although_its_process_wrote_no_checkpoint(tmp_path, monkeypatch):
    """Not even status.json is left of the process that ran round 2 on a GPU."""
    folder = tmp_path / "run"
    words = (*WORDS, "algo=uldp_avg", "preset.n_users=4", "preset.local_epochs=1")
    run_or_resume(folder, *words, "rounds=1")

    def on_a_gpu(*given, **how):
        prepared = prepare(*given, **how)
        return replace(prepared, facts=replace(prepared.facts, device="cuda"))

    with monkeypatch.context() as patched, dies_in(2, sums=[]):
        patched.setattr("fedpriv.runs.loop.prepare", on_a_gpu)
        with pytest.raises(Death):
            run_or_resume(folder, *words, "rounds=3", resume=True)
    (folder / STATUS).unlink()
    assert Checkpoint.read(folder / CHECKPOINT).round == 1
    run_or_resume(folder, *words, "rounds=3", resume=True)
    assert read_status(folder)["devices"] == ["cpu", "cuda"]
