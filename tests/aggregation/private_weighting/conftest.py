import pytest

SMALL_SAFE_PRIME = 2**255 + 196479


@pytest.fixture
def small_group(monkeypatch):
    """Transfers in a group of 256 bits instead of 3072, for tests of many."""
    monkeypatch.setattr("fedpriv.crypto.oblivious_transfer.prime", lambda: SMALL_SAFE_PRIME)
    for module in ("server", "silo"):
        monkeypatch.setattr(f"fedpriv.aggregation.private_weighting.{module}.ELEMENT_BYTES", 32)
    return SMALL_SAFE_PRIME
