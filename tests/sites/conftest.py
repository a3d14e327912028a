import pytest


@pytest.fixture(autouse=True)
def quick_to_dial_again(monkeypatch):
    """Sites that find no coordinator wait for a moment, not for seconds."""
    grpc_lines = pytest.importorskip("fedpriv.engines.site_lines")
    monkeypatch.setattr(grpc_lines, "RETRY", (0.05, 0.2))
