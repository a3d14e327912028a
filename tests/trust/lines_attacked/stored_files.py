"""Lines of files: run folders, pickles, archives."""

from __future__ import annotations

import gzip
import tempfile
from pathlib import Path

import pytest
from command import run as command

from fedpriv.errors import FedprivError
from fedpriv.runs.stored_config import read_config
from lines_attacked.rows import CHANCE, attack, refused

TINY = ("allocator.n_users=8", "allocator.n_silos=2", "algo.local_epochs=1", "accountant=rdp")
PLACE = Path(tempfile.mkdtemp(prefix="lines"))


def stored():
    """A fresh copy of a finished run."""
    import shutil

    honest = PLACE / "honest"
    if not honest.exists():
        assert command(*TINY, "rounds=1", f"hydra.run.dir={honest}", cwd=PLACE).returncode == 0
    return Path(shutil.copytree(honest, PLACE / f"theirs{len(list(PLACE.iterdir()))}"))


def rewritten(folder, **values):
    import yaml

    config = yaml.safe_load((folder / "config.yaml").read_text())
    for key, value in values.items():
        *above, last = key.split("__")
        node = config
        for name in above:
            node = node[name]
        node[last] = value
    (folder / "config.yaml").write_text(yaml.safe_dump(config))
    return folder


@attack(
    "files",
    "a run's folder: name a class of its own",
    "names that only begin like fedpriv, or reach another module through one of ours",
)
def targets():
    evil = PLACE / "fedpriv_evil.py"
    evil.write_text(f"open({str(PLACE / 'ran')!r}, 'w')\nclass X: pass\n")
    names = [
        "fedpriv_evil.X",
        "fedprivx.X",
        "fedpriv.cli.os.system",
        "fedpriv.errors.sys.exit",
        "fedpriv..X",
        ".X",
        "fedpriv.runs.folder.Path",
        "fedpriv.testing.deaths.Death",
        "builtins.dict",
        "FEDPRIV.x.X",
    ]
    for name in names:
        folder = rewritten(stored(), tracker___target_=name)
        done = command(f"resume={folder}", "rounds=2", cwd=PLACE)
        assert done.returncode == 2, name
        assert not (PLACE / "ran").exists(), name
    return f"{len(names)} of {len(names)} refused, nothing ran"


@attack(
    "files",
    "a run's folder: contain an interpolation",
    "six resolvers, of the environment, Hydra and other keys",
)
def interpolations():
    texts = [
        "${oc.env:HOME}",
        "a${oc.env:PATH}",
        "${hydra:runtime.cwd}",
        "${oc.decode:1}",
        "${seed}",
        "${now:%Y}",
    ]
    for text in texts:
        folder = rewritten(stored(), device=text)
        assert refused(lambda folder=folder: read_config(folder), FedprivError), text
    return f"{len(texts)} of {len(texts)} refused"


@attack(
    "files",
    "a run's folder: contain links to other files",
    "a link to a link, a hard link",
)
def links():
    victim = PLACE / "victim"
    fell = []
    for kind in ("link to a link", "hard link"):
        victim.write_text("keep\n")
        folder = stored()
        path = folder / "metrics.csv"
        victim.write_bytes(path.read_bytes())
        before = victim.read_bytes()
        path.unlink()
        if kind == "hard link":
            path.hardlink_to(victim)
        else:
            (folder / "other").symlink_to(victim)
            path.symlink_to(folder / "other")
        command(f"resume={folder}", "rounds=2", cwd=PLACE)
        if victim.read_bytes() != before:
            fell.append(kind)
    if fell:
        return f"**fell** for a {' and a '.join(fell)}: see the page"
    return "refused, or the victim unchanged"


@attack(
    "files",
    "a run's folder: a checkpoint with a right checksum and wrong arrays",
    "random bytes of the same length, a cut file, a file after itself",
)
def checkpoints():
    for kind in range(3):
        folder = stored()
        path = folder / "checkpoint.safetensors"
        raw = path.read_bytes()
        path.write_bytes([CHANCE.randbytes(len(raw)), raw[: len(raw) // 2], raw + raw][kind])
        done = command(f"resume={folder}", "rounds=2", cwd=PLACE)
        assert done.returncode == 2, kind
        assert "Traceback" not in done.stderr
    return "3 of 3 refused in one line"


@attack(
    "files",
    "a run's folder: huge or deeply nested files, YAML tags or references",
    "anchors that multiply, python tags, duplicate and composed keys, a zero byte, deep lists",
)
def yaml_bombs():
    anchors = "a0: &a0 [1,1]\n" + "".join(
        f"a{i}: &a{i} [*a{i - 1},*a{i - 1}]\n" for i in range(1, 30)
    )
    texts = [
        anchors,
        "a: !!python/object/apply:os.system [id]\n",
        "<<: {a: 1}\n",
        "seed: 1\nseed: 2\n",
        "? [a]\n: 1\n",
        "\0",
        "a: " + "[" * 5000,
    ]
    for text in texts:
        folder = stored()
        (folder / "config.yaml").write_text(text)
        assert refused(lambda folder=folder: read_config(folder), FedprivError), text[:40]
    return f"{len(texts)} of {len(texts)} refused in one line"


@attack(
    "files",
    "safetensors files contain arrays and no code",
    "offsets beyond the file, a header longer than the file, drawn bytes",
)
def safetensors():
    from safetensors import SafetensorError
    from safetensors.numpy import load_file

    path = PLACE / "m.safetensors"
    header = b'{"a":{"dtype":"F32","shape":[9999999999],"data_offsets":[0,4]}}'
    for raw in (
        len(header).to_bytes(8, "little") + header + b"\0" * 4,
        (2**60).to_bytes(8, "little"),
        CHANCE.randbytes(64),
    ):
        path.write_bytes(raw)
        with pytest.raises(SafetensorError):
            load_file(path)
    return "3 of 3 refused"


@attack(
    "files",
    "archives: unpack to more than the official files",
    "a gzip of 10^9 zeros in place of MNIST's labels",
)
def gzip_bomb():
    folder = PLACE / "mnist" / "MNIST" / "raw"
    folder.mkdir(parents=True)
    with gzip.open(folder / "train-labels-idx1-ubyte.gz", "wb", 1) as file:
        for _ in range(200):
            file.write(bytes(5 * 10**6))
    done = command("data", "data=mnist", f"data.root={PLACE / 'mnist'}", cwd=PLACE)
    assert done.returncode == 2
    assert done.stderr.strip().count("\n") == 0
    return "one line, before it is unpacked"


@attack(
    "files",
    "a run's folder: contain names with control characters",
    "escapes of one and two bytes and a right-to-left mark, in a key and its value",
)
def control():
    folder = rewritten(stored(), **{"algo\x1b[31m": "\x9b2J\u202e"})
    done = command(f"resume={folder}", "rounds=2", cwd=PLACE)
    assert done.returncode == 2
    assert not {"\x1b", "\x9b", "\u202e"} & set(done.stderr), repr(done.stderr)
    return "printed as text"


@attack(
    "files",
    "`fedpriv table` writes only --out",
    "the run's files before and after table, epsilon and load",
)
def only_reads():
    folder = stored()
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    for words in (("table", str(folder)), ("epsilon", f"resume={folder}")):
        assert command(*words, cwd=PLACE).returncode == 0
    assert before == {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    return "no byte changed"


@attack(
    "files",
    "a run's folder: name a Ray cluster, a tracking server or keys",
    "address auto, a roster without keys under Ray, a tracker's file address",
)
def addresses():
    ray, mlflow = "fedpriv.engines.ray.RayEngine", "fedpriv.trackers.mlflow.MlFlow"
    nodes = [
        {"engine": {"_target_": ray, "address": "auto"}},
        {"engine": {"_target_": ray, "journals": "j"}},
        {"engine": {"_target_": ray, "roster": "r", "keys": "k", "journals": "j"}},
        {"tracker": {"_target_": mlflow, "uri": "file:///tmp/x", "experiment": "x"}},
    ]
    for node in nodes:
        folder = rewritten(stored(), **node)
        done = command(f"resume={folder}", "rounds=2", cwd=PLACE)
        assert done.returncode == 2, node
        assert "--trust-code" in done.stderr, done.stderr
    return f"{len(nodes)} of {len(nodes)} refused"
