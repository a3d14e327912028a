import pytest
from fake_runs import fake_run
from rich.console import Console

from fedpriv.errors import FedprivError
from fedpriv.reports.finished_runs import find_runs
from fedpriv.reports.groups import group_runs, settings
from fedpriv.reports.sweep_states import print_sweep

VALUES, EPSILON = [0.1, 0.4, 0.8], (1.0, 2.0)


def test_seeds_are_one_group_whatever_ran_them(tmp_path):
    for seed in (3, 1):
        fake_run(tmp_path / str(seed), "ULDP-AVG", VALUES, EPSILON, seed=seed, clip=1)
    [group] = group_runs(find_runs([tmp_path]))
    assert (group.name, group.seeds) == ("ULDP-AVG", (1, 3))


NAMED = [
    (
        [("AVG", 3, {"clip": 1}), ("AVG", 3, {"clip": 2.0}), ("FedAvg", 3, {"lr": 0.1})],
        ["AVG, clip=1", "AVG, clip=2", "FedAvg"],
    ),
    # What belongs to no method is always named.
    ([("AVG", 3, {}), ("FedAvg", 2, {})], ["AVG, rounds=2", "FedAvg, rounds=1"]),
    # Also where one group lacks a key that another has.
    (
        [("AVG", 3, {}), ("AVG", 3, {"rate": 0.5}), ("AVG", 3, {"rate": 0.5, "clip": 0.5})],
        ["AVG", "AVG, rate=0.5", "AVG, rate=0.5, clip=0.5"],
    ),
]


@pytest.mark.parametrize(("runs", "names"), NAMED)
def test_groups_are_named_by_the_keys_that_differ(tmp_path, runs, names):
    for place, (label, values, algo) in enumerate(runs):
        fake_run(tmp_path / str(place), label, VALUES[:values], EPSILON, **algo)
    assert [group.name for group in group_runs(find_runs([tmp_path]))] == names


def test_five_and_five_point_zero_are_one_setting():
    assert (
        settings({"algo": {"noise": 5.0}}) == settings({"algo": {"noise": 5}}) == {"algo.noise": 5}
    )


def test_runs_are_read_in_the_order_of_their_jobs(tmp_path):
    places = [f"{sweep}/{number}" for sweep in "ba" for number in (10, 2, 1)]
    for seed, place in enumerate(places):
        fake_run(tmp_path / place, "AVG", VALUES, EPSILON, seed=seed)
    found = [str(run.folder.relative_to(tmp_path)) for run in find_runs([tmp_path])]
    assert found == ["a/1", "a/2", "a/10", "b/1", "b/2", "b/10"]


def test_what_is_below_a_run_is_a_part_of_it(tmp_path):
    fake_run(tmp_path / "0", "AVG", VALUES, EPSILON)
    fake_run(tmp_path / "0" / "stopping", "EVALUATION", VALUES, EPSILON, state="failed")
    said = []
    assert [run.folder for run in find_runs([tmp_path], said.append)] == [tmp_path / "0"]
    assert [state.folder for state in print_sweep(tmp_path, Console(quiet=True))] == [
        tmp_path / "0"
    ]
    assert not said


def test_the_same_run_twice_is_refused_unless_it_is_the_same_folder(tmp_path):
    fake_run(tmp_path / "0", "AVG", VALUES, EPSILON, seed=7)
    assert len(find_runs([tmp_path, tmp_path / "0", tmp_path / "." / "0"])) == 1
    fake_run(tmp_path / "1", "AVG", VALUES, EPSILON, seed=8)
    fake_run(tmp_path / "2", "AVG", VALUES, EPSILON, seed=7)
    with pytest.raises(FedprivError, match=r"0 and .*2 are the same run twice \(seed=7\)"):
        group_runs(find_runs([tmp_path]))
