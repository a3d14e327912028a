"""Settings of other frameworks become drafts: nothing runs, nothing is invented, all is listed.

The files are written here in the layouts of two versions of each framework.
"""

import json
import math

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
FLOWER_NEW = """
from flwr.serverapp.strategy import DifferentialPrivacyServerSideFixedClipping, FedAvg
def main(grid, context):
    bound = float(context.run_config["clipping-norm"])
    return DifferentialPrivacyServerSideFixedClipping(
        FedAvg(), noise_multiplier=0.2, clipping_norm=bound,
        num_sampled_clients=20,
    )
"""
FLOWER_OLD = """
from flwr.server.strategy import DifferentialPrivacyClientSideFixedClipping
strategy = DifferentialPrivacyClientSideFixedClipping(base, 0.2, 10, 20)
"""
LOCAL_OLD = "from flwr.client.mod import LocalDpMod\nmod = LocalDpMod(1.0, 1.0, 8.0, 1e-5)\n"
LOCAL_NEW = """
from flwr.clientapp.mod import LocalDpMod
mod = LocalDpMod(clipping_norm=1.0, sensitivity=1.0, epsilon=8.0, delta=1e-5)
"""
OPACUS_OLD = """
from opacus import PrivacyEngine
BOUND = 1.2
model, optimizer, loader = PrivacyEngine().make_private(
    module=model, optimizer=optimizer, data_loader=loader, noise_multiplier=1.5,
    max_grad_norm=BOUND)
"""
OPACUS_NEW = """
engine = PrivacyEngine(accountant="prv")
model, optimizer, criterion, loader = engine.make_private(
    module=model, optimizer=optimizer, criterion=criterion, data_loader=loader,
    noise_multiplier=1.5, max_grad_norm=1.2, grad_sample_mode="ghost")
"""
OPACUS_TARGET = """
make = engine.make_private_with_epsilon(module=m, optimizer=o, data_loader=d, epochs=3,
    target_epsilon=50.0, target_delta=1e-5, max_grad_norm=1.0)
"""
TFF_FIXED = """
factory = tff.aggregators.DifferentiallyPrivateFactory.gaussian_fixed(
    noise_multiplier=1.2, clients_per_round=120, clip=0.5)
"""
TFF_ADAPTIVE = "aggregator = tff.learning.dp_aggregator(1.2, 120)\n"
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


def project(folder, code):
    (folder / "pyproject.toml").write_text(TOML)
    (folder / "app.py").write_text(code)
    return read_settings(folder)


def certified(found):
    return [finding.certified.epsilon for finding in judge(parse(found.as_data()))]


def at(data, path):
    for key in path.split("."):
        data = data[int(key)] if isinstance(data, list) else data[key]
    return data


STRATEGY_FOUND = {
    "releases.0.clip": 10,
    "releases.0.times": 3,
    "releases.0.noise.deviation": pytest.approx(2.0),
    "releases.0.noise.added_by": "server",
    "releases.0.seen.server": "unknown",
    "releases.0.sampling.rule": "unknown",
}
LOCAL_FOUND = {
    "releases.0.noise.deviation": pytest.approx(math.sqrt(2 * math.log(1.25e5)) / 8),
    "claims": [
        {
            "epsilon": 8.0,
            "delta": 1e-5,
            "unit": "unknown",
            "adjacency": "unknown",
            "observer": "server",
        }
    ],
}
OPACUS_FOUND = {
    "releases.0.noise.deviation": pytest.approx(1.8),
    "releases.0.noise.generator": "unknown",
    "releases.0.contributor": "record",
    "releases.0.clip": 1.2,
    "releases.0.times": "unknown",
    "releases.0.sampling.rule": "poisson",  # Opacus' default
}
BOOK = {"cells": [{"cell_type": "code", "source": ["%matplotlib inline\n", OPACUS_TARGET]}]}
TARGET_FOUND = {
    "claims.0.epsilon": 50.0,
    "claims.0.delta": 1e-5,
    "claims.0.unit": "record",
    "releases.0.noise.deviation": "unknown",
}
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
    ("app.py", FLOWER_OLD, STRATEGY_FOUND, ""),
    ("app.py", FLOWER_NEW, STRATEGY_FOUND, ""),
    ("app.py", LOCAL_OLD, LOCAL_FOUND, ""),
    ("app.py", LOCAL_NEW, LOCAL_FOUND, ""),
    ("train.py", OPACUS_OLD, OPACUS_FOUND, ""),
    ("train.py", OPACUS_NEW, OPACUS_FOUND, ""),
    ("train.ipynb", json.dumps(BOOK), TARGET_FOUND, "computes the noise when it runs"),
    ("train.py", TFF_FIXED, {"releases.0.noise.deviation": pytest.approx(0.6)}, ""),
    ("train.py", TFF_ADAPTIVE, {"releases.0.noise.deviation": "unknown"}, "bound adapts"),
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
    found = project(tmp_path, text) if name == "app.py" else draft(tmp_path, name, text)
    data = found.as_data()
    assert {path: at(data, path) for path in expected} == expected
    assert unread in "\n".join(found.unread)


@pytest.mark.parametrize(
    "change",
    [
        ("1.5", "noise_for(1.5)"),
        ("BOUND = 1.2", "BOUND = 1.2\nBOUND = 9.9"),
        ("BOUND = 1.2", "def f(BOUND):\n    pass\nBOUND = 1.2"),
        ("BOUND = 1.2", "if late:\n    BOUND = 1.2"),
        ("BOUND = 1.2", "from settings import *\nBOUND = 1.2"),
        ("noise_multiplier=1.5", "**settings"),
        ("max_grad_norm=BOUND", 'max_grad_norm=BOUND, clipping="per_layer"'),
    ],
)
def test_what_may_be_another_value_is_unknown(tmp_path, change):
    found = draft(tmp_path, "train.py", OPACUS_OLD.replace(*change))
    assert found.releases[0]["noise"]["deviation"] == "unknown"
    assert found.unread


@pytest.mark.parametrize("code", [FLOWER_OLD, LOCAL_NEW, OPACUS_NEW, OPACUS_TARGET, "x = 1\n"])
def test_a_draft_is_never_certified(tmp_path, code):
    found = project(tmp_path, code)
    assert set(certified(found)) == {math.inf}
    assert {finding.verdict for finding in judge(parse(found.as_data()))} == {NO_CERTIFICATE}


def test_nothing_runs(tmp_path):
    mark = tmp_path / "ran"
    code = f"open({str(mark)!r}, 'w')\n{OPACUS_OLD}"
    assert draft(tmp_path, "train.py", code).releases
    assert not mark.exists()


@pytest.mark.parametrize("code", ["def f(:\n", "(" * 100_000, "\0", "-" * 50_000 + "1"])
def test_a_source_that_cannot_be_read_is_listed(tmp_path, code):
    found = draft(tmp_path, "train.py", code)
    assert "not read" in found.unread[0]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.toml", "x = ["),
        ("a.json", "[" * 100_000),
        ("a.yaml", "- 1"),
        ("a.txt", ""),
        ("a.sh", "'"),
    ],
)
def test_a_wrong_file_ends_in_one_line(tmp_path, name, text):
    (tmp_path / "pyproject.toml").write_text(text if name == "a.toml" else TOML)
    with pytest.raises(DataError, match=r"pyproject|a\."):
        draft(tmp_path, name, text)


def test_a_newcomer_s_walk(tmp_path, capsys):
    """From a Flower project to a verdict in two commands."""
    project(tmp_path, LOCAL_NEW)
    main(["--import", str(tmp_path)])
    claim = tmp_path / "claim.yaml"
    claim.write_text(capsys.readouterr().out)
    with pytest.raises(SystemExit) as end:
        main([str(claim)])
    assert end.value.code == 1
    said = capsys.readouterr().out
    assert "no certificate" in said
    assert "claims.0.adjacency: which neighbours" in said


STRATEGY = "DifferentialPrivacyServerSideFixedClipping(strategy, 1.0, 2.0, 10)"


def flower(folder, source):
    """The draft of a project of three rounds, and its lines of what was not read."""
    found = project(folder, source)
    return found.as_data(), "\n".join(found.unread)


@pytest.mark.parametrize(
    "source", [f"if private:\n    s = {STRATEGY}\n", f"s = [{STRATEGY} for n in sizes]\n"]
)
def test_a_call_in_a_branch_or_a_loop_is_named(tmp_path, source):
    assert "stands in a branch or a loop" in flower(tmp_path, source)[1]
    plain = f'def main():\n    s = {STRATEGY}\nif __name__ == "__main__":\n    main()\n'
    assert "a branch or" not in flower(tmp_path, plain)[1]


@pytest.mark.parametrize(
    ("call", "times"),
    [
        ("s.start(num_rounds=100)", "unknown"),
        ("s.start(num_rounds=count())", "unknown"),
        ('n: int = context.run_config["num-server-rounds"]\ns.start(num_rounds=n)', 3),
    ],
)
def test_rounds_that_code_sets_are_not_those_of_the_file(tmp_path, call, times):
    data, unread = flower(tmp_path, f"s = {STRATEGY}\n{call}\n")
    assert data["releases"][0]["times"] == times
    assert ("num_rounds" in unread) == (times == "unknown")


def test_links_and_projects_without_a_known_call_are_named(tmp_path):
    (tmp_path / "linked.py").symlink_to(tmp_path / "server.py")
    unread = flower(tmp_path, "import x as y\ny.start()\n")[1]
    assert "linked.py: not read: a link" in unread
    assert "no call that adds noise was found" in unread


def test_a_notebook_without_cells_is_not_read(tmp_path):
    (tmp_path / "book.ipynb").write_text('{"cells": 3}')
    assert "no list of cells" in "\n".join(read_settings(tmp_path / "book.ipynb").unread)
