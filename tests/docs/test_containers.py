"""The Dockerfile, the development container and the Makefile agree with the project.

No container is built here: what they copy, call and name is looked up.
"""

import json
import re
import tomllib

from page_blocks import ROOT

DOCKERFILE = (ROOT / "Dockerfile").read_text()
MAKEFILE = (ROOT / "Makefile").read_text()
CONTAINER = json.loads((ROOT / ".devcontainer" / "devcontainer.json").read_text())
SETTINGS = tomllib.loads((ROOT / "pyproject.toml").read_text())
PROJECT = SETTINGS["project"]


def test_the_image_copies_what_the_package_is_built_from():
    copied = {
        name
        for line in re.findall(r"^COPY (.*) \S+$", DOCKERFILE, re.MULTILINE)
        for name in line.split()
    }
    ignore = (ROOT / ".dockerignore").read_text().splitlines()
    for name in copied:
        assert (ROOT / name).exists(), name
        assert f"!{name}" in ignore, name
    wheel = SETTINGS["tool"]["hatch"]["build"]["targets"]["wheel"]
    sources = {*wheel["packages"], *wheel["force-include"], PROJECT["readme"]}
    assert copied >= {*sources, *PROJECT["license-files"], "Makefile", "constraints.txt"}


def test_stages_targets_and_the_version_of_python_exist():
    for command in (DOCKERFILE, CONTAINER["postCreateCommand"]):
        for target in re.findall(r"\bmake (\w+) \w+=", command):
            assert re.search(rf"^{target}:", MAKEFILE, re.MULTILINE), target
    assert CONTAINER["build"]["dockerfile"] == "../Dockerfile"
    assert re.search(rf"^FROM .* AS {CONTAINER['build']['target']}$", DOCKERFILE, re.MULTILINE)
    (version,) = re.findall(r"^FROM python:([\d.]+)-slim", DOCKERFILE, re.MULTILINE)
    assert f"Programming Language :: Python :: {version}" in PROJECT["classifiers"]


def test_the_demo_installs_no_extra():
    demo = MAKEFILE.split("$(DEMO): ")[1].split("\n\n")[0]
    assert "--editable ." in demo
    assert ".[" not in demo
