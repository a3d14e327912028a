"""Mutants of source text: what is changed, what is left alone, and that the list of accepted ones
does not rot."""

import os
import subprocess
import sys
from collections import Counter

import pytest

from scripts.mutants.__main__ import ACCEPTED, ROOT, is_one, read_accepted
from scripts.mutants.mutate import mutants
from scripts.mutants.tests_of import chosen_tests, source_files

SOURCE = '''"""Text with 1 < 2."""
SIZE: Literal[3] = 2**8

@cached(4)
def noise(x: Annotated[int, 5], unused: int = 6, share: float = 0.5) -> int:
    """More text with 7."""
    require(x > 0, "x", x, f"above {9}")
    if x and not (share := x / share):
        raise ValueError(x + 10)
    self.spent = x
    x += draw(x, encoding=share)
    return -x if isinstance(x, int) else min(x, math.sqrt(x))
'''
CHANGES = [
    ("module", "SIZE: Literal[3] = 2*8"),
    ("module", "SIZE: Literal[3] = 2**9"),
    ("noise", "def noise(x: Annotated[int, 5], unused: int = 6, share: float = 1.0) -> int:"),
    ("noise", "pass"),  # require
    ("noise", 'require(x >= 0, "x", x, f"above {9}")'),
    ("noise", 'require(x > 1, "x", x, f"above {9}")'),
    ("noise", "if x or not (share := x / share):"),
    ("noise", "if x and (share := x / share):"),
    ("noise", "if x and not (share := x * share):"),
    ("noise", "pass"),  # raise
    ("noise", "pass"),  # self.spent
    ("noise", "pass"),  # x +=
    ("noise", "x += draw(x)"),
    ("noise", "return x if isinstance(x, int) else min(x, math.sqrt(x))"),
    ("noise", "return -x if not (isinstance(x, int)) else min(x, math.sqrt(x))"),
    ("noise", "return -x if isinstance(x, int) else max(x, math.sqrt(x))"),
    ("noise", "return -x if isinstance(x, int) else min(x, float(x))"),
]


def test_what_matters_is_changed_and_nothing_else():
    found = mutants("noise.py", SOURCE)
    assert Counter((one.scope, one.after) for one in found) == Counter(CHANGES)


def test_every_source_has_tests_that_exist():
    for source in source_files(ROOT, []):
        tests = chosen_tests(ROOT, source)
        assert tests
        assert all(
            (ROOT / test).is_file() for test in tests
        )  # a folder would name none of its tests


def test_every_accepted_survivor_is_a_mutant_and_has_a_reason():
    accepted = read_accepted(ACCEPTED)
    made = {
        one.name
        for file in sorted({name.partition(" :: ")[0] for name in accepted})
        for one in mutants(file, (ROOT / file).read_text())
    }
    assert [name for name in accepted if not is_one(name, made)] == []
    assert all(len(reason) > 10 for reason in accepted.values())


SMALL = {
    "scripts/__init__.py": "",
    "fedpriv/__init__.py": "",
    "fedpriv/crypto/__init__.py": "",
    "fedpriv/crypto/digest.py": (
        "from dataclasses import dataclass\n\n"
        "def half(x):\n    return x // 2\n\ndef wait(x):\n    while half(x) > x: pass\n\n"
        "@dataclass\nclass Share:\n    parts: int = 2\n"
    ),
    "tests/crypto/test_digest.py": (
        "from fedpriv.crypto.digest import Share, half, wait\n\n\n"
        "def test_it():\n    SHOWN\n\n\ndef test_share():\n    assert Share().parts == 2\n"
    ),
    "tests/aggregation/secagg/test_secagg_aborts.py": "def test_it():\n    pass\n",
    "pyproject.toml": "[tool.pytest.ini_options]\n",
    "scripts/mutants/accepted.txt": "",
}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("shown", "code"), [("wait(0), wait(9); assert half(6) == 3", 0), ("wait(0), wait(9)", 1)]
)
def test_a_survivor_fails_the_command_and_an_endless_loop_does_not(tmp_path, shown, code):
    """In a tree of its own, whose one source has four mutants: two loop for ever, one is noticed by
    an assertion, and one is a default that no function of the source reads."""
    scripts = [
        f"scripts/mutants/{name}.py"
        for name in ("__init__", "__main__", "forks", "mutate", "patch", "reach", "tests_of")
    ]
    for name, text in (SMALL | {name: (ROOT / name).read_text() for name in scripts}).items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(
            text.replace("SHOWN", shown) if name.startswith("tests") else text
        )
    command = [sys.executable, "-m", "scripts.mutants", "--all", "fedpriv/crypto/digest.py"]
    environment = os.environ | {"PYTHONPATH": str(tmp_path)}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == code, done.stdout + done.stderr
    assert "2 timeout" in done.stdout
    assert done.stdout.count("survived: ") == code
