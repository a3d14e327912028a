import pytest
from fake_runs import fake_run

from fedpriv.errors import FedprivError
from fedpriv.reports.finished_runs import find_runs
from fedpriv.reports.groups import group_runs, require_one_group, settings

VALUES, EPSILON = [0.1, 0.4, 0.8], (1.0, 2.0)


def test_seeds_are_one_group_whatever_ran_them(tmp_path):
    for seed in (3, 1):
        fake_run(tmp_path / str(seed), "ULDP-AVG", VALUES, EPSILON, seed=seed, clip=1)
    [group] = group_runs(find_runs([tmp_path]))
    assert (group.name, group.seeds) == ("ULDP-AVG", (1, 3))


def test_groups_are_named_by_the_keys_that_differ(tmp_path):
    for place, (label, algo) in enumerate(
        [
            ("AVG", {"clip": 1, "lr": 0.5}),
            ("AVG", {"clip": 2.0, "lr": 0.5}),
            ("FedAvg", {"lr": 0.1}),
        ]
    ):
        fake_run(tmp_path / str(place), label, VALUES, EPSILON, **algo)
    assert [group.name for group in group_runs(find_runs([tmp_path]))] == [
        "AVG, clip=1",
        "AVG, clip=2",
        "FedAvg",
    ]


def test_what_belongs_to_no_method_is_always_named(tmp_path):
    fake_run(tmp_path / "0", "AVG", VALUES, EPSILON)
    fake_run(tmp_path / "1", "FedAvg", VALUES[:2], EPSILON)
    assert [group.name for group in group_runs(find_runs([tmp_path]))] == [
        "AVG, rounds=2",
        "FedAvg, rounds=1",
    ]


def test_every_group_has_a_name_of_its_own(tmp_path):
    """Also where one group lacks a key that another has."""
    fake_run(tmp_path / "0", "AVG", VALUES, EPSILON)
    fake_run(tmp_path / "1", "AVG", VALUES, EPSILON, rate=0.5)
    fake_run(tmp_path / "2", "AVG", VALUES, EPSILON, rate=0.5, clip=0.5)
    names = [group.name for group in group_runs(find_runs([tmp_path]))]
    assert len(set(names)) == 3


def test_five_and_five_point_zero_are_one_setting():
    assert (
        settings({"algo": {"noise": 5.0}}) == settings({"algo": {"noise": 5}}) == {"algo.noise": 5}
    )


def test_the_same_run_twice_is_refused_unless_it_is_the_same_folder(tmp_path):
    fake_run(tmp_path / "0", "AVG", VALUES, EPSILON, seed=7)
    assert len(find_runs([tmp_path, tmp_path / "0", tmp_path / "." / "0"])) == 1
    fake_run(tmp_path / "1", "AVG", VALUES, EPSILON, seed=7)
    with pytest.raises(FedprivError, match=r"0 and .*1 are the same run twice \(seed=7\)"):
        group_runs(find_runs([tmp_path]))


def test_runs_that_should_be_one_group_name_what_differs(tmp_path):
    fake_run(tmp_path / "0", "AVG", VALUES, EPSILON, clip=1)
    fake_run(tmp_path / "1", "AVG", VALUES, EPSILON, seed=1, clip=2)
    with pytest.raises(FedprivError, match=r"more than their seed: algo\.clip"):
        require_one_group(find_runs([tmp_path]))
