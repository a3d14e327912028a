"""The page about the architecture: every room has its line, every answer is a file that does what
the question asks for."""

import re
import tomllib

from page_blocks import ROOT

PAGE = (ROOT / "docs" / "architecture.md").read_text()

WHERE = PAGE.split("## Where is what")[1].split("## ")[0]
ANSWERS = re.findall(r"^\| ([^|]+\?) \| `([\w/]+\.py)` \|$", WHERE, re.MULTILINE)

HOLDS = {  # what only the right file defines
    "rounds/bounding.py": "def bounded(",
    "runtime/silo.py": "class SiloParticipant",
    "mechanisms/gaussian.py": "class Gaussian(",
    "certificates/derive.py": "Event(",
    "certificates/noise.py": "class SumNoise(",
    "certificates/sampling.py": "class Poisson(",
    "rounds/contributors.py": "class Users(",
    "rounds/weighting.py": "class Weighting(",
    "rounds/local_job.py": "class LocalJob",
    "rounds/plan.py": "class Observer",
    "accountants/ledger.py": "class Ledger",
    "runs/tables.py": "epsilon.csv",
    "runs/journal.py": "class Journal",
    "runs/run_or_resume.py": "def ",
    "runtime/identity.py": "class RunIdentity",
    "settings/experiment.py": "class Experiment",
    "data/allocate.py": "class Allocator(",
    "data/flags.py": "def flags(",
    "training/select.py": "def select_trainer(",
    "training/layers/supported.py": "class ",
    "parties/post.py": "class Post",
    "aggregation/base.py": "class Aggregation(",
    "util/streams.py": "class Streams",
    "testing/algorithms.py": "def check_algorithm(",
    "audit/premises.py": "class Premise",
    "papers/ledger/rule.py": "def answer(",
}


def test_twenty_questions_have_one_file_each_that_defines_what_they_ask_for():
    assert len(ANSWERS) >= 20
    assert {file for _, file in ANSWERS} == set(HOLDS)
    for question, file in ANSWERS:
        assert HOLDS[file] in (ROOT / "fedpriv" / file).read_text(), question


def test_every_room_has_a_line_in_the_order_of_the_import_contract():
    layers = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
    [contract] = [c for c in layers["contracts"] if c["type"] == "layers"]
    floors = [layer.split(" | ") for layer in contract["layers"]]
    place = {room: i for i, floor in enumerate(floors) for room in floor if room != "__main__"}
    table = PAGE.split("## Rooms")[1].split("Torch is")[0]
    listed = re.findall(r"`(\w+)/?`", " ".join(re.findall(r"^\| (`[^|]+) \|", table, re.MULTILINE)))
    assert set(listed) == set(place)
    assert listed == sorted(listed, key=place.get)
