"""What an organisation is shown of a study, and that it alone allows it."""

import io
import math

import pytest
from refusals import refused

from fedpriv.accountants.pld import gaussian_epsilon
from fedpriv.sites import command
from sites.study import Federation, write_yaml

pytest.importorskip("grpc")


@pytest.mark.parametrize(("said", "allowed"), [("yes\n", True), ("y\n", False), ("", False)])
def test_a_study_is_shown_and_allowed_by_yes_alone(said, allowed, tmp_path, monkeypatch, capsys):
    here = Federation(tmp_path, ("randomness=system",), simulation=False)
    write_yaml(tmp_path / "east.yaml", here.site_file("east") | {"folder": "state/east"})
    capsys.readouterr()
    monkeypatch.setattr("sys.stdin", io.StringIO(said))
    command.main(["approve", f"{tmp_path}/east.yaml"])
    shown = capsys.readouterr().out
    epsilon = gaussian_epsilon(math.sqrt(3), 1e-5)  # three rounds, noise multiplier 1
    assert f"seen by the released model: epsilon {epsilon:.4g} at delta 1e-05\n" in shown
    assert "budget of this site: epsilon 20 at delta 1e-05\n" in shown
    assert "east.csv: 9 users and 27 records would train\n" in shown
    assert ("allowed: study" in shown) == allowed
    site = here.site("east")
    if allowed:
        site.require_approved(site.published())
    else:
        refused(lambda: site.require_approved(site.published()), "`fedpriv site approve`")
