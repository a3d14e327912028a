"""The page of tampered messages: one table a world, in a fixed order, each replaced by a newer one
of itself."""

from scripts.fault_scenarios import SCENARIOS
from scripts.tamper import HEAD, page


def test_a_table_replaces_the_older_one_of_its_world_alone(tmp_path):
    path = tmp_path / "page.md"
    for name, table in (
        ("plain", "### old\n\n| a |\n"),
        ("secagg", "### sums\n\n| b |\n"),
        ("plain", "### new\n\n| c |"),
    ):
        path.write_text(page(path, name, table))
    text = path.read_text()
    assert text.startswith(HEAD)
    assert text.count("<!--") == 2
    assert text.index("### sums") < text.index("### new")
    assert "old" not in text.removeprefix(HEAD)
    assert page(path, "plain", "### new\n\n| c |") == text


def test_every_aggregation_is_in_the_page():
    named = " ".join(scenario.command for scenario in SCENARIOS.values())
    for aggregation in (
        "plain",
        "masked",
        "secagg",
        "secagg_exact_noise",
        "private_weighting",
        "shuffle",
        "admm",
    ):
        assert f"aggregation={aggregation} " in f"{named} "
