"""The Dockerfile, the development container and the Makefile agree with the project.

No container is built here: what they copy, call and name is looked up.
"""

import json
import re
import tomllib

from page_blocks import ROOT

DOCKERFILE = (ROOT / "Dockerfile").read_text()
MAKEFILE = (ROOT / "Makefile").read_text()
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
STAGES = re.findall(r"^FROM \S+ AS (\w+)$", DOCKERFILE, re.MULTILINE)


def test_what_the_image_copies_is_there_and_is_not_ignored():
    copied = [
        name
        for line in re.findall(r"^COPY (.*) \S+$", DOCKERFILE, re.MULTILINE)
        for name in line.split()
    ]
    ignore = (ROOT / ".dockerignore").read_text().splitlines()
    assert set(copied) >= {"Makefile", "pyproject.toml", "constraints.txt", "conf", "fedpriv"}
    for name in copied:
        assert (ROOT / name).exists(), name
        assert f"!{name}" in ignore, name


def test_the_image_copies_what_the_package_is_built_from():
    build = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]
    wheel = build["targets"]["wheel"]
    sources = [*wheel["packages"], *wheel["force-include"], PROJECT["readme"]]
    for name in [*sources, *PROJECT["license-files"]]:
        assert re.search(rf"^COPY .*\b{name}\b", DOCKERFILE, re.MULTILINE), name


def test_targets_of_make_exist():
    settings = json.loads((ROOT / ".devcontainer" / "devcontainer.json").read_text())
    for command in (DOCKERFILE, settings["postCreateCommand"]):
        for target in re.findall(r"\bmake (\w+) \w+=", command):
            assert re.search(rf"^{target}:", MAKEFILE, re.MULTILINE), target


def test_the_development_container_is_a_stage_of_the_dockerfile():
    settings = json.loads((ROOT / ".devcontainer" / "devcontainer.json").read_text())
    assert settings["build"]["target"] in STAGES
    assert settings["build"]["dockerfile"] == "../Dockerfile"


def test_the_image_has_a_python_that_the_package_names():
    (version,) = re.findall(r"^FROM python:([\d.]+)-slim", DOCKERFILE, re.MULTILINE)
    assert f"Programming Language :: Python :: {version}" in PROJECT["classifiers"]


def test_the_demo_installs_no_extra():
    demo = MAKEFILE.split("$(DEMO): ")[1].split("\n\n")[0]
    assert "--editable ." in demo
    assert ".[" not in demo
