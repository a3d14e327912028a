"""Settings of other frameworks become drafts: nothing runs, nothing is invented, all is listed.

The files are written here in the layouts of two versions of each framework.
"""

import json
import math
import re

import pytest
import yaml

from fedpriv.claims.command import main, read_settings
from fedpriv.claims.reading import parse
from fedpriv.claims.verdicts import NO_CERTIFICATE, judge
from fedpriv.errors import DataError

TOML = """
[project]
name = "example"
[tool.flwr.app.config]
num-server-rounds = 3
max-grad-norm = 1.5
clipping-norm = 10
"""
NVFLARE_OLD = {
    "format_version": 2,
    "task_result_filters": [
        {"tasks": ["train"], "filters": [{"name": "SVTPrivacy", "args": {"epsilon": 0.1}}]}
    ],
}
NVFLARE_NEW = {
    "format_version": 2,
    "task_result_filters": [
        {
            "tasks": ["train"],
            "filters": [
                {
                    "path": "nvflare.app_common.filters.svt_privacy.SVTPrivacy",
                    "args": {"epsilon": 0.1, "fraction": 0.9},
                }
            ],
        }
    ],
}
PFL = {
    "central_privacy_mechanism": "gaussian_moments_accountant",
    "central_epsilon": 2.0,
    "central_delta": 1e-6,
    "central_privacy_clipping_bound": 0.4,
    "noise_cohort_size": 1000,
    "cohort_size": 50,
    "population": 1e6,
    "central_num_iterations": 1500,
}


def draft(folder, name, text):
    path = folder / name
    path.write_text(text)
    return read_settings(path)


def certified(found):
    return [finding.certified.epsilon for finding in judge(parse(found.as_data()))]


def at(data, path):
    for key in path.split("."):
        data = data[int(key)] if isinstance(data, list) else data[key]
    return data


ROUNDS_FOUND = {
    "releases.0.times": 3,
    "releases.0.contributor": "client",
    "releases.0.noise.mechanism": "unknown",
    "releases.0.clip": "unknown",
    "releases.0.seen.server": "unknown",
}
NO_ROUNDS = TOML.replace("= 3", "= 0")
PFL_FOUND = {
    "releases.0.sampling.rate": pytest.approx(1e-3),
    "releases.0.times": 1500,
    "releases.0.clip": 0.4,
}
OTHER_PFL = {key: value for key, value in PFL.items() if key != "noise_cohort_size"}
UNCOUNTED_PFL = {key: value for key, value in PFL.items() if key != "population"}
FLAMBY = "--dp_target_epsilon{0}1.0 --dp_target_delta{0}0.01 --dp_max_grad_norm{0}1.1\n"
FLAMBY_FOUND = {"claims.0.epsilon": 1.0, "claims.0.delta": 0.01, "releases.0.clip": 1.1}
PFLLIB = "python main.py -data MNIST -m CNN -algo FedAvg -gr 2000\n"
SVT = {"claims.0.epsilon": 0.1}
FOUND = [
    ("pyproject.toml", TOML, ROUNDS_FOUND, "bounds and noise are in code"),
    ("pyproject.toml", NO_ROUNDS, {"releases.0.times": "unknown"}, "bounds and noise"),
    ("pyproject.toml", "tool = 1\n", {"releases.0.times": "unknown"}, "bounds and noise"),
    ("config.json", json.dumps(NVFLARE_OLD), SVT, "SVTPrivacy is not described"),
    ("config.json", json.dumps(NVFLARE_NEW), SVT, "SVTPrivacy is not described"),
    ("baseline.yaml", yaml.safe_dump(PFL), PFL_FOUND, "noise_cohort_size"),
    (
        "baseline.yaml",
        yaml.safe_dump(OTHER_PFL),
        PFL_FOUND | {"releases.0.sampling.rate": pytest.approx(5e-5)},
        "",
    ),
    (
        "baseline.yaml",
        yaml.safe_dump(UNCOUNTED_PFL),
        PFL_FOUND | {"releases.0.sampling.rate": "unknown"},
        "",
    ),
    ("run.sh", "python fed_benchmark.py " + FLAMBY.format(" "), FLAMBY_FOUND, ""),
    ("run.sh", "python fed_benchmark.py " + FLAMBY.format("="), FLAMBY_FOUND, ""),
    ("run.sh", PFLLIB, {"releases.0.noise": {"mechanism": "none"}}, "nothing is noised"),
]


@pytest.mark.parametrize(("name", "text", "expected", "unread"), FOUND)
def test_what_a_project_says(tmp_path, name, text, expected, unread):
    found = draft(tmp_path, name, text)
    data = found.as_data()
    assert {path: at(data, path) for path in expected} == expected
    assert unread in "\n".join(found.unread)


@pytest.mark.parametrize(("name", "text"), [(name, text) for name, text, _, _ in FOUND])
def test_a_draft_is_never_certified(tmp_path, name, text):
    found = draft(tmp_path, name, text)
    assert set(certified(found)) == {math.inf}
    assert {finding.verdict for finding in judge(parse(found.as_data()))} == {NO_CERTIFICATE}


@pytest.mark.parametrize("name", ["train.py", "train.ipynb", "a.txt"])
def test_code_is_recorded_and_not_read(tmp_path, name):
    with pytest.raises(DataError, match=rf"{name}: cannot be imported; .*fedpriv\.record\(\)"):
        draft(tmp_path, name, "make_private(noise_multiplier=1.0)")


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.toml", "x = ["),
        ("a.json", "[" * 100_000),
        ("a.yaml", "- 1"),
        ("a.sh", "'"),
    ],
)
def test_a_wrong_file_ends_in_one_line(tmp_path, name, text):
    with pytest.raises(DataError, match=re.escape(str(tmp_path / name))):
        draft(tmp_path, name, text)


def test_a_newcomer_s_walk(tmp_path, capsys):
    """From a Flower project to a verdict in two commands."""
    (tmp_path / "pyproject.toml").write_text(TOML)
    main(["--import", str(tmp_path)])
    claim = tmp_path / "claim.yaml"
    claim.write_text(capsys.readouterr().out)
    with pytest.raises(SystemExit) as end:
        main([str(claim)])
    assert end.value.code == 1
    said = capsys.readouterr().out
    assert "no certificate" in said
    assert "claims.0.adjacency: which neighbours" in said
