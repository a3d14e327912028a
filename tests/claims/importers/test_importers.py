"""Settings of other frameworks become drafts: nothing runs, nothing is invented, all is listed.

The files are written here in the layouts of two versions of each framework.
"""

import json
import math

import pytest
import yaml

from fedpriv.claims.command import main
from fedpriv.claims.importers.choose import read_settings
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


@pytest.mark.parametrize("code", [FLOWER_OLD, FLOWER_NEW])
def test_flower_strategies(tmp_path, code):
    found = project(tmp_path, code)
    [release] = found.as_data()["releases"]
    assert (release["clip"], release["times"]) == (10, 3)
    assert release["noise"]["deviation"] == pytest.approx(2.0)
    assert release["noise"]["added_by"] == "server"
    assert release["seen"]["server"] == release["sampling"]["rule"] == "unknown"


@pytest.mark.parametrize("code", [LOCAL_OLD, LOCAL_NEW])
def test_flower_local_dp(tmp_path, code):
    found = project(tmp_path, code).as_data()
    assert found["releases"][0]["noise"]["deviation"] == pytest.approx(
        math.sqrt(2 * math.log(1.25e5)) / 8
    )
    assert found["claims"] == [
        {
            "epsilon": 8.0,
            "delta": 1e-5,
            "unit": "unknown",
            "adjacency": "unknown",
            "observer": "server",
        }
    ]


@pytest.mark.parametrize("code", [OPACUS_OLD, OPACUS_NEW])
def test_opacus(tmp_path, code):
    [release] = draft(tmp_path, "train.py", code).as_data()["releases"]
    assert release["noise"]["deviation"] == pytest.approx(1.8)
    assert (release["contributor"], release["clip"], release["times"]) == ("record", 1.2, "unknown")
    assert release["noise"]["generator"] == "unknown"


def test_opacus_with_a_target(tmp_path):
    book = {"cells": [{"cell_type": "code", "source": ["%matplotlib inline\n", OPACUS_TARGET]}]}
    found = draft(tmp_path, "train.ipynb", json.dumps(book))
    assert found.claims[0] | {"epsilon": 50.0, "delta": 1e-5, "unit": "record"} == found.claims[0]
    assert found.releases[0]["noise"]["deviation"] == "unknown"
    assert any("computes the noise when it runs" in line for line in found.unread)


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


@pytest.mark.parametrize("code", [TFF_FIXED, TFF_ADAPTIVE])
def test_tensorflow_federated(tmp_path, code):
    found = draft(tmp_path, "train.py", code)
    expected = pytest.approx(0.6) if code == TFF_FIXED else "unknown"
    assert found.releases[0]["noise"]["deviation"] == expected


@pytest.mark.parametrize("config", [NVFLARE_OLD, NVFLARE_NEW])
def test_nvflare(tmp_path, config):
    found = draft(tmp_path, "config_fed_client.json", json.dumps(config))
    assert found.claims[0]["epsilon"] == 0.1
    assert "SVTPrivacy is not described" in found.unread[0]


@pytest.mark.parametrize("left_out", [None, "noise_cohort_size"])
def test_pfl_research(tmp_path, left_out):
    config = {key: value for key, value in PFL.items() if key != left_out}
    [release] = draft(tmp_path, "baseline.yaml", yaml.safe_dump(config)).releases
    assert release["sampling"]["rate"] == pytest.approx(5e-5 if left_out else 1e-3)
    assert (release["times"], release["clip"]) == (1500, 0.4)


@pytest.mark.parametrize("equals", [" ", "="])
def test_flamby_s_arguments(tmp_path, equals):
    words = ["--dp_target_epsilon", "1.0", "--dp_target_delta", "0.01", "--dp_max_grad_norm", "1.1"]
    pairs = zip(words[::2], words[1::2])
    line = " ".join(f"{name}{equals}{value}" for name, value in pairs)
    found = draft(tmp_path, "run.sh", f"python fed_benchmark.py {line}\n")
    assert (found.claims[0]["epsilon"], found.claims[0]["delta"]) == (1.0, 0.01)
    assert found.releases[0]["clip"] == 1.1


def test_pfllib_s_arguments_noise_nothing(tmp_path):
    found = draft(tmp_path, "run.sh", "python main.py -data MNIST -m CNN -algo FedAvg -gr 2000\n")
    assert found.releases[0]["noise"] == {"mechanism": "none"}


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
    config = "[tool.flwr.app.config]\nnum-server-rounds = 3\n"
    (folder / "pyproject.toml").write_text(config)
    (folder / "server.py").write_text(source)
    found = read_settings(folder)
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


ALIAS = """
from flwr.serverapp.strategy import DifferentialPrivacyServerSideFixedClipping, FedAvg
def main(grid, context):
    c = context.run_config
    bound = float(c["clipping-norm"])
    return DifferentialPrivacyServerSideFixedClipping(FedAvg(), 0.2, bound, 20)
"""


def test_a_name_for_the_run_configuration_is_followed(tmp_path):
    [release] = project(tmp_path, ALIAS).releases
    assert release["clip"] == 10
    twice = ALIAS + "def other(context):\n    c = context.run_config\n    return c['x']\n"
    assert project(tmp_path, twice).releases[0]["clip"] == 10


@pytest.mark.parametrize(
    "change",
    [
        "    c['clipping-norm'] = 3\n",
        "    c.update(other)\n",
        "    change(c)\n",
        "    c = other\n",
        "    d = c\n",
        "    for c in others: pass\n",
    ],
)
def test_a_run_configuration_that_may_be_another_one_is_not(tmp_path, change):
    head, first, rest = ALIAS.partition("    c = context.run_config\n")
    assert project(tmp_path, head + first + change + rest).releases[0]["clip"] == "unknown"
