"""Every command that README and the pages print is run, page by page, in one folder.

Training is made small: one round, one epoch, one seed, small files in the place of real ones. What
takes more than that is checked by composing and building all of its jobs: other processes and
clusters (their launchers and engine have tests of their own). Figures of papers are looked up;
`test_experiments` trains them. `make` and installations are held against the Makefile and
pyproject.toml.
"""

import re
import shlex
import shutil
import tomllib
from importlib.util import find_spec

import pytest
from command import run
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ed25519
from page_blocks import FENCE, PAGES, ROOT, blocks

from fedpriv.audit import command as audit_command
from fedpriv.audit import one_run
from fedpriv.audit.audit import Effort
from fedpriv.cli import COMMANDS
from fedpriv.papers import reproduce
from fedpriv.papers.ledger.entries import entries
from fedpriv.projects.patients import csv_text
from fedpriv.settings.compose import CommandLine, compose_jobs, without_hydra
from fedpriv.settings.experiment import GROUPS, build
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
BUILT = ("hydra/launcher=joblib", "hydra/launcher=submitit", "engine=ray", "mechanism=correlated")
BUILT += ("experiment=baselines/dp_ftrl",)
"""Words of commands that start other processes, or repeat sums over many rounds."""
PLACES = {
    "data.root=path/to/data": "data.root=small",
    "folder": "outputs/sweep",
    "resume=outputs/...": "resume=outputs/run",
    "hydra.sweeper.n_trials=20": "hydra.sweeper.n_trials=2",
    "hydra.sweeper.mean=10": "hydra.sweeper.mean=2",
}
"""What stands for something of the reader's or takes long, and what does in its place."""
MENTIONS = ("fedpriv table", "fedpriv figure", "fedpriv compare", "fedpriv report", "fedpriv audit")
MENTIONS += ("fedpriv analyse", "fedpriv evaluate")
"""Names of commands in a sentence, that need further words."""
TRAINS = ("-m", "--config-dir")
"""Flags of a command that trains."""
SMALL = ("rounds=1", "preset.local_epochs=1", "preset.silo_epochs=1")
ENCRYPTED = ["aggregation.key_bits=512", "aggregation.n_max=120", "aggregation.count_cap=20"]


def printed(page):
    """A page's commands: lines of blocks without a language, and code in its text, each once."""
    lines = [line for block in blocks(page) for line in block.commands]
    lines = [line.split("  #")[0].strip() for line in lines if "extending" not in page.parts]
    inline = re.findall(r"`([^`\n]+)`", FENCE.sub("", page.read_text()))
    found = dict.fromkeys([*filter(None, lines), *filter(BEGINNING.match, inline)])
    return [line for line in found if line not in MENTIONS]


def shrunk(words):
    """Words of a training command that take a moment, and mean the same up to sizes."""
    kept = [word for word in words if not word.startswith(("rounds=", "seed="))]
    if any(word.startswith("resume=") for word in words):
        return [*kept, "rounds=2"]
    kept = ["stop.every=1" if word.startswith("stop.every=") else word for word in kept]
    return [*kept, *SMALL, *(ENCRYPTED if "aggregation=private_weighting" in words else [])]


def carry_out(words, cwd):
    """A `fedpriv` command, as small as it can be."""
    words = [PLACES.get(word, word) for word in words if word not in ("key=value", "...")]
    name = words[0] if words and words[0] in COMMANDS else ""
    if name in ("reproduce", "replicate"):
        known = {*reproduce.FIGURES, *entries(), "all", "paper", "2"}
        assert {word for word in words[1:] if not word.startswith("--")} <= known
        return
    if not name and any(word.startswith(BUILT) for word in words):
        for config in compose_jobs(CommandLine.parse(words), conf_dir()):
            build(without_hydra(config))
        return
    if name == "audit" and not {"analyse", "evaluate"} & {*words}:
        words = shrunk(words)
    elif name == "compare":
        words = [*shrunk(words), "seed=0..1"]
    elif not name and not any(word[0] == "-" and word not in TRAINS for word in words):
        words = [*shrunk(words), "quiet=true"]
    done = run(*words, cwd=cwd)
    assert done.returncode == 0, (words, done.stderr)


def write_keys(folder):
    """What openssl writes: an Ed25519 key, and its public half."""
    key = ed25519.Ed25519PrivateKey.generate()
    pem = serialization.Encoding.PEM
    own = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    public = serialization.PublicFormat.SubjectPublicKeyInfo
    (folder / "private.pem").write_bytes(key.private_bytes(pem, *own))
    (folder / "public.pem").write_bytes(key.public_key().public_bytes(pem, public))


@pytest.fixture(scope="module")
def world(tmp_path_factory, small_root):
    """A folder with a finished run, a sweep, a signed report and small data; attacks take no
    time."""
    folder = tmp_path_factory.mktemp("world")
    tiny = ("preset.local_epochs=1", "rounds=1", "quiet=true")
    write_keys(folder)
    (folder / "visits.csv").write_text(csv_text())
    (folder / "new.csv").write_text(csv_text(patients=3))
    table = ("data=table", "data.path=visits.csv", "data.label=died", "data.user=patient")
    for words in (
        (*table, "data.silo=hospital", "data.missing=fill", "hydra.run.dir=outputs/visits", *tiny),
        ("hydra.run.dir=outputs/run", *tiny),
        ("-m", "seed=0,1", "hydra.sweep.dir=outputs/sweep", *tiny),
        ("report", "outputs/sweep", "--sign", "private.pem", "--out", "report.html"),
    ):
        assert run(*words, cwd=folder).returncode == 0
    (folder / "small").symlink_to(small_root)
    case = ROOT / "docs" / "court" / "cases" / "dp_fl_simple_composition.yaml"
    shutil.copy(case, folder / "claim.yaml")
    (folder / "project").mkdir()
    (folder / "project" / "pyproject.toml").write_text("")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FEDPRIV_DATA", str(small_root))
        for effort in ("QUICK", "THOROUGH"):
            patch.setattr(audit_command, effort, Effort(1.0, 20))
            patch.setattr(audit_command, f"{effort}_CANARIES", 400)
        patch.setattr(one_run, "PREMISE_EFFORT", Effort(1.0, 20))
        yield folder


DONE = set()
"""Commands that an earlier page prints too."""


@pytest.mark.parametrize(
    "page", [*filter(printed, PAGES)], ids=lambda page: str(page.relative_to(ROOT))
)
def test_every_command_of_a_page_works(page, world):
    for line in printed(page):
        program, *words = shlex.split(line)
        if line in DONE or line in INSTALLATIONS:
            continue
        if program == "fedpriv":
            carry_out(words, world)
        elif program == "cp":
            shutil.copy(*(world / word for word in words))
        elif program == "make":
            assert re.search(f"^{words[0]}:", (ROOT / "Makefile").read_text(), re.MULTILINE), line
        elif program == "python":
            assert_module(words)
        elif program == "pip":
            named = re.findall(r"\[([\w-]+)\]", words[1])
            project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
            assert set(named) <= set(project["optional-dependencies"]), line
        else:
            assert line == 'eval "$(fedpriv -sc install=bash)"'
            assert run("-sc", "install=bash", cwd=world).returncode == 0
        DONE.add(line)


def assert_module(words):
    """`python -m module ...` of this repository."""
    words = words[words[0] == "-P" :]
    assert words[0] == "-m", words
    assert find_spec(words[1]), words
    if words[1] == "benchmarks" and words[2:]:
        assert find_spec(f"benchmarks.{words[2]}"), words


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
    for group in GROUPS.keys() - {"tracker"}:
        for file in (conf_dir() / group).glob("*.yaml"):
            assert f"`{file.stem}`" in text, file
