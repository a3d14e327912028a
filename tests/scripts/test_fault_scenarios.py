"""Messages are tampered with under every aggregation."""

from pathlib import Path

from scripts.fault_scenarios import SCENARIOS

CONF = Path(__file__).parents[2] / "conf" / "aggregation"


def test_every_aggregation_has_a_scenario():
    named = " ".join(scenario.command for scenario in SCENARIOS.values())
    for file in CONF.glob("*.yaml"):
        assert f"aggregation={file.stem} " in f"{named} "
