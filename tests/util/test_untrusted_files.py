"""Files that would block, fill the memory or describe more than plain values."""

import os
import threading
import time

import pytest
import yaml

from fedpriv.util.untrusted_files import (
    links_and_devices,
    read_bytes,
    read_json,
    read_plain_values,
    read_plain_yaml,
)

BILLION = "a: &a [x, x]\n" + "".join(
    f"{this}: &{this} [*{last}, *{last}]\n" for last, this in zip("abcdefgh", "bcdefghi")
)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (BILLION, "anchor"),
        ("a: !!python/object/apply:os.system [id]\n", "tag"),
        ("a: !!binary aGk=\n", "tag"),
        ("a: !mine 3\n", "tag"),
        ("a: " + "[" * 21 + "]" * 21 + "\n", "nested"),
        ("a: " + "{b: " * 300 + "}" * 300, "nested"),
        ("a: " + "x" * 2**20, "bytes"),
    ],
)
def test_yaml_describes_plain_values(tmp_path, text, reason):
    (tmp_path / "config.yaml").write_text(text)
    with pytest.raises(ValueError, match=reason):
        read_plain_yaml(tmp_path / "config.yaml")


def test_plain_yaml_is_read(tmp_path):
    text = "a: 1e-5\nb: [x, 'y: z', null]\nc: {d: {e: '5'}}\n"
    text += "f: [" + "[1], " * 50 + "2]\n"  # many lists, and none deep
    (tmp_path / "config.yaml").write_text(text)
    assert yaml.safe_load(read_plain_yaml(tmp_path / "config.yaml")) == yaml.safe_load(text)


@pytest.mark.parametrize("text", ["[" * 100_000, "[1]", "3", "{", "\ud800"])
def test_json_is_one_mapping(tmp_path, text):
    (tmp_path / "status.json").write_bytes(text.encode("utf-8", "surrogatepass"))
    with pytest.raises(ValueError, match=r"\w"):
        read_json(tmp_path / "status.json")


def test_the_time_of_a_file_grows_with_its_size(tmp_path):
    """Seconds of processor time; looking for each key among all others took 40."""
    path = tmp_path / "claim.yaml"
    path.write_text("{" + ", ".join(f"k{number}: 1" for number in range(40_000)) + "}")
    started = time.process_time()
    assert len(read_plain_values(path)) == 40_000
    assert time.process_time() - started < 10
    path.write_text("a: {b: 1, c: 2, b: 3}")
    with pytest.raises(ValueError, match="it has the key b twice"):
        read_plain_values(path)


def test_pipes_devices_and_huge_files_are_not_read(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "zeros").symlink_to("/dev/zero")
    with open(tmp_path / "sparse", "wb") as file:
        file.truncate(2**40)
    refused = []

    def read():
        for name in ("pipe", "zeros", "sparse"):
            with pytest.raises(ValueError, match=r"not a regular file|at most 64"):
                read_bytes(tmp_path / name, 64)
            refused.append(name)

    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    reader.join(10)
    assert refused == ["pipe", "zeros", "sparse"]


def test_links_and_pipes_are_found(tmp_path):
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").touch()
    assert not list(links_and_devices(tmp_path))
    (tmp_path / "link").symlink_to("file")
    os.mkfifo(tmp_path / "pipe")
    assert {path.name for path in links_and_devices(tmp_path)} == {"link", "pipe"}
