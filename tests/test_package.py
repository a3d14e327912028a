"""The configuration tree is found from a checkout and from an installed wheel."""

import os
import subprocess
import sys
import sysconfig
import venv
import zipfile
from collections import Counter
from pathlib import Path

import pytest

from fedpriv.settings.words import conf_dir

ROOT = Path(__file__).resolve().parents[1]


def test_a_checkout_uses_its_top_level_conf():
    assert conf_dir() == ROOT / "conf"


@pytest.mark.parametrize(("set_to", "found"), [(None, "AUTO"), ("AVX2", "AVX2")])
def test_products_of_matrices_have_the_same_bits_anywhere_unless_the_user_says_how(set_to, found):
    """What that does is seen in tests/training/test_chain.py, on processors where it matters."""
    env = {name: value for name, value in os.environ.items() if name != "MKL_CBWR"}
    env |= {"MKL_CBWR": set_to} if set_to else {}
    asked = [sys.executable, "-c", "import os, fedpriv; print(os.environ['MKL_CBWR'])"]
    assert (
        subprocess.run(asked, env=env, capture_output=True, text=True, check=True).stdout.strip()
        == found
    )


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    out = tmp_path_factory.mktemp("dist")
    command = [
        sys.executable,
        "-m",
        "build",
        "--wheel",
        "--no-isolation",
        "--outdir",
        str(out),
        str(ROOT),
    ]
    subprocess.run(command, check=True, capture_output=True)
    return next(out.glob("*.whl"))


def test_the_wheel_carries_every_config_file(wheel):
    names = set(zipfile.ZipFile(wheel).namelist())
    for file in (ROOT / "conf").rglob("*.yaml"):
        assert f"fedpriv/{file.relative_to(ROOT).as_posix()}" in names
    assert "fedpriv/testing/algorithms.py" in names
    sources = (ROOT / "fedpriv").rglob("source/*")
    assert {file.relative_to(ROOT).as_posix() for file in sources} <= names
    assert "fedpriv/training/trainers/compiled/source/training.cpp" in names
    assert not any(name.startswith(("tests/", "scripts/", "benchmarks/")) for name in names)


ADVICE = "from fedpriv.util.installed import how_to_install; print(how_to_install('onnx'))"
"""A program that prints how to install an extra."""


def test_a_checkout_installs_an_extra_from_its_folder():
    done = subprocess.run(
        [sys.executable, "-c", ADVICE], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout.endswith(f" install -e '{ROOT}[onnx]'\n")


def test_an_installed_wheel_runs_outside_the_checkout(wheel, tmp_path):
    """A new environment holds the wheel; the dependencies are borrowed from this one."""
    venv.create(tmp_path / "env", with_pip=False)
    python = tmp_path / "env" / "bin" / "python"
    site = next((tmp_path / "env" / "lib").glob("python*/site-packages"))
    zipfile.ZipFile(wheel).extractall(site)
    (site / "borrowed.pth").write_text(sysconfig.get_paths()["purelib"] + "\n")
    work = tmp_path / "work"
    work.mkdir()
    env = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}

    def printed(*words):
        done = subprocess.run(
            [python, *words], cwd=work, env=env, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    where = "import fedpriv.settings.words as words; print(words.conf_dir())"
    assert printed("-c", where) == str(site / "fedpriv" / "conf")
    packages = "'onnx>=1.17' 'onnxruntime>=1.20' 'onnxscript>=0.5'"  # the extra of pyproject.toml
    assert printed("-c", ADVICE) == f"{python} -m pip install {packages}"
    words = ["rounds=1", "algo.local_epochs=1", "allocator.n_users=6", "hydra.run.dir=out"]
    printed("-m", "fedpriv", *words)
    assert (work / "out" / "model.safetensors").exists()


def test_helper_modules_of_tests_have_names_of_their_own():
    """They are on one path: of two with one name, a test would import whichever comes first."""
    files = [file for file in (ROOT / "tests").rglob("*.py") if file.stem != "conftest"]
    assert [name for name, times in Counter(file.stem for file in files).items() if times > 1] == []
