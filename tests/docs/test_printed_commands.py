"""Every command that README and the pages print is run, page by page in the order of the page and
in one folder.

Training is made small: one round, one epoch, one seed, small files in the place of real ones. What
takes more than that is checked by composing and building all of its jobs: other processes and
clusters (their launchers and engine have tests of their own). Figures of papers are looked up by
the real command and drawn by nobody; `test_experiments` trains them. `make` and installations are
held against the Makefile and pyproject.toml.
"""

import re
import shlex
import shutil
import tomllib
from importlib.util import find_spec

import pytest
from command import Done, run
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ed25519
from page_blocks import FENCE, PAGES, ROOT, blocks

from fedpriv.audit import command as audit_command
from fedpriv.audit import one_run
from fedpriv.audit.audit import Effort
from fedpriv.cli import COMMANDS
from fedpriv.papers import reproduce
from fedpriv.papers.ledger import command as ledger_command
from fedpriv.projects.patients import csv_text
from fedpriv.settings.compose import CommandLine, compose_jobs, without_hydra
from fedpriv.settings.experiment import build
from fedpriv.settings.words import conf_dir

BEGINNING = re.compile(r"(fedpriv|make|python[\d.]*|pip|uv|docker|eval|source|\.venv/bin/\w+) \S")
INSTALLATIONS = {
    "pip install uv",
    "uv pip install --torch-backend=cpu torch torchvision",
    "pip install .",
    "source .venv/bin/activate",
    "docker build -t fedpriv .",
    "openssl genpkey -algorithm ed25519 -out private.pem",
    "openssl pkey -in private.pem -pubout -out public.pem",
}
"""What an environment or a key takes, word for word: for the reader's shell alone."""
ELSEWHERE = ("hydra/launcher=joblib", "hydra/launcher=submitit", "engine=ray")
"""Words of commands that start other processes."""
PLACES = {
    "data.root=path/to/data": "data.root=small",
    "folder": "outputs/sweep",
    "resume=outputs/...": "resume=outputs/run",
}
"""What stands for something of the reader's, and what does in its place."""
MENTIONS = ("fedpriv table", "fedpriv figure", "fedpriv compare", "fedpriv report", "fedpriv audit")
"""Names of commands in a sentence, that need further words."""
ENCRYPTED = ["aggregation.key_bits=512", "aggregation.n_max=120", "aggregation.count_cap=20"]


def printed(page):
    """A page's commands: lines of blocks without a language, and code in its text, each once."""
    lines = (
        []
        if "extending" in page.parts
        else [line for block in blocks(page) for line in block.commands]
    )
    lines = [line.split("  #")[0].strip() for line in lines if line.strip()]
    inline = [
        code
        for code in re.findall(r"`([^`\n]+)`", FENCE.sub("", page.read_text()))
        if BEGINNING.match(code)
    ]
    return [line for line in dict.fromkeys([*lines, *inline]) if line not in MENTIONS]


WITH_COMMANDS = [page for page in PAGES if printed(page)]


def shrunk(words):
    """Words of a training command that take a moment, and mean the same up to sizes."""
    words = list(words)
    if any(word.startswith("resume=") for word in words):
        return [*(word for word in words if not word.startswith("rounds=")), "rounds=2"]
    small = [
        re.sub(r"^seed=.*", "seed=0", word) for word in words if not word.startswith("rounds=")
    ]
    small += ["rounds=1", "preset.local_epochs=1", "preset.silo_epochs=1"]
    return small + (ENCRYPTED if "aggregation=private_weighting" in words else [])


def in_place(words):
    """Placeholders replaced, or left out where they stand for any settings."""
    return [PLACES.get(word, word) for word in words if word not in ("key=value", "...")]


def is_built(words):
    jobs = compose_jobs(CommandLine.parse(words), conf_dir())
    for config in jobs:
        build(without_hydra(config))
    return Done(0, str(len(jobs)), "")


def carried_out(words, cwd):
    """A `fedpriv` command, as small as it can be."""
    name = words[0] if words and words[0] in COMMANDS else ""
    if any(word.startswith(ELSEWHERE) for word in words):
        for launcher in ("joblib", "submitit"):
            if any(launcher in word for word in words):
                pytest.importorskip(f"hydra_plugins.hydra_{launcher}_launcher")
        return is_built(words)
    if "mechanism=correlated" in words and not name:
        return is_built(words)  # it repeats sums over many rounds
    if words[:2] == ["report", "--verify"] and not (cwd / "report.html").exists():
        signed = ("report", "outputs/sweep", "--sign", "private.pem", "--out", "report.html")
        assert run(*signed, cwd=cwd).returncode == 0
    if name == "audit":
        return run(*shrunk(words), cwd=cwd)
    if name == "compare":
        small = ["seed=0..1", *shrunk(word for word in words if not word.startswith("seed="))]
        return run("compare", *(word for word in small if word != "compare"), cwd=cwd)
    if name or any(word.startswith("-") and word != "-m" for word in words):
        return run(*words, cwd=cwd)
    return run(*shrunk(words), "quiet=true", cwd=cwd)


@pytest.fixture(scope="module")
def extras():
    return tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A folder with a finished run and a sweep."""
    folder, tiny = (
        tmp_path_factory.mktemp("finished"),
        ["preset.local_epochs=1", "rounds=1", "quiet=true"],
    )
    assert run(*tiny, "hydra.run.dir=outputs/run", cwd=folder).returncode == 0
    assert run("-m", "seed=0,1", *tiny, "hydra.sweep.dir=outputs/sweep", cwd=folder).returncode == 0
    return folder


def write_keys(folder):
    """What openssl writes: an Ed25519 key, and its public half."""
    key = ed25519.Ed25519PrivateKey.generate()
    pem = serialization.Encoding.PEM
    own = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    public = serialization.PublicFormat.SubjectPublicKeyInfo
    (folder / "private.pem").write_bytes(key.private_bytes(pem, *own))
    (folder / "public.pem").write_bytes(key.public_key().public_bytes(pem, public))


@pytest.fixture
def world(tmp_path, monkeypatch, small_root, finished):
    """The same, with small data, and attacks and figures that take no time."""
    shutil.copytree(finished / "outputs", tmp_path / "outputs")
    shutil.copytree(finished / "outputs" / "run", tmp_path / "outputs" / "visits")
    (tmp_path / "small").symlink_to(small_root)
    case = ROOT / "docs" / "court" / "cases" / "dp_fl_simple_composition.yaml"
    shutil.copy(case, tmp_path / "claim.yaml")
    (tmp_path / "visits.csv").write_text(csv_text())
    write_keys(tmp_path)
    (tmp_path / "project").mkdir()
    (tmp_path / "project" / "pyproject.toml").write_text("")
    monkeypatch.setenv("FEDPRIV_DATA", small_root)
    monkeypatch.setattr(audit_command, "QUICK", Effort(1e9, 20))
    monkeypatch.setattr(audit_command, "THOROUGH", Effort(1e9, 20))
    for effort in ("QUICK_CANARIES", "THOROUGH_CANARIES"):
        monkeypatch.setattr(one_run, effort, 40)
    monkeypatch.setattr(ledger_command, "_replicate", lambda entry: None)
    for name in reproduce.FIGURES:
        monkeypatch.setitem(reproduce.FIGURES, name, lambda folder, profile: True)
    return tmp_path


@pytest.mark.parametrize("page", WITH_COMMANDS, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_command_of_a_page_works(page, world, extras):
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for line in printed(page):
        program, *words = shlex.split(line)
        if program == "fedpriv":
            done = carried_out(in_place(words), world)
            assert done.returncode == 0, (line, done.stderr)
        elif program == "make":
            assert words[0] in targets, line
            assert all("=" in word for word in words[1:]), line
        elif program == "python":
            assert_module(words)
        elif program == "pip":
            assert words[0] == "install", line
            named = re.findall(r"\[([\w-]+)\]", words[1])
            assert set(named) <= set(extras), line
        elif program == "eval":
            assert run("-sc", "install=bash", cwd=world).returncode == 0
        else:
            assert line in INSTALLATIONS, line


def assert_module(words):
    """`python -m module ...`, or `python` with a file or a folder of this repository."""
    if "/" in words[0]:
        path = ROOT / words[0]
        assert (path / "__main__.py" if path.is_dir() else path).is_file(), words
        return
    words = words[words[0] == "-P" :]
    assert words[0] == "-m", words
    assert find_spec(words[1]), words
    if words[1] == "benchmarks":
        assert set(words[2:]) <= {module.stem for module in (ROOT / "benchmarks").glob("*.py")}


def test_commands_are_found_where_they_stand():
    assert "fedpriv resume=outputs/mine rounds=60" in printed(ROOT / "docs" / "getting_started.md")
    assert "make demo" in printed(ROOT / "README.md")
    assert "fedpriv reproduce uldp_fl/fig5" in printed(ROOT / "docs" / "papers" / "uldp_fl.md")


def test_every_figure_is_on_some_page():
    text = "\n".join(page.read_text() for page in PAGES)
    for name in reproduce.FIGURES:
        assert f"`{name}`" in text or f"fedpriv reproduce {name}`" in text, name


def test_every_component_is_on_the_page_about_components():
    text = (ROOT / "docs" / "components.md").read_text()
    for group in (
        "data",
        "allocator",
        "model",
        "algo",
        "optimizer",
        "mechanism",
        "accountant",
        "aggregation",
        "engine",
    ):
        for file in (conf_dir() / group).glob("*.yaml"):
            assert f"`{file.stem}`" in text, file
