"""The files of a site: locked, private, and not older than they were."""

import os
import shutil
from pathlib import Path

import pytest

from fedpriv.errors import RefusedError
from fedpriv.ledgers.counted_lines import CountedFile


@pytest.fixture
def site(tmp_path):
    """A file with three lines, and an older one and its counter in backup/."""
    file = CountedFile(str(tmp_path / "study" / "silo0.txt"), str(tmp_path / "counters"))
    for line in (b"one\n", b"two\n"):
        with file.open() as lines:
            lines.append(line)
    for name in ("study", "counters"):
        shutil.copytree(tmp_path / name, tmp_path / "backup" / name)
    with file.open() as lines:
        lines.append(b"three\n")
    return file


def put_back(folder, name):
    shutil.rmtree(folder / name)
    shutil.copytree(folder / "backup" / name, folder / name)


def counter_of(folder):
    [path] = (folder / "counters").iterdir()
    return path


def linked(folder):
    (folder / "study" / "silo0.txt").rename(folder / "study" / "moved.txt")
    (folder / "study" / "silo0.txt").symlink_to("moved.txt")


def dangling(folder):
    (folder / "study" / "silo0.txt").unlink()
    (folder / "study" / "silo0.txt").symlink_to(folder / "nowhere.txt")


def piped(folder):
    (folder / "study" / "silo0.txt").unlink()
    os.mkfifo(folder / "study" / "silo0.txt", 0o600)


def copied(folder):
    """To a machine with a state of its own."""
    shutil.move(folder / "counters", folder / "elsewhere")


def edited(folder):
    path = folder / "study" / "silo0.txt"
    path.write_bytes(path.read_bytes().replace(b"two", b"TWO"))


CHANGES = {
    "not as it was last used": (
        lambda folder: put_back(folder, "study"),
        lambda folder: shutil.rmtree(folder / "study"),
        lambda folder: os.truncate(folder / "study" / "silo0.txt", 0),
        lambda folder: os.truncate(folder / "study" / "silo0.txt", 9),
        edited,
    ),
    "without its counter": (copied, lambda folder: counter_of(folder).unlink()),
    "it is a symbolic link": (linked, dangling),
    "it is not a regular file": (piped,),
    r"others can open .*study \(mode 0755\); chmod 700 it": (
        lambda folder: (folder / "study").chmod(0o755),
    ),
    r"others can open .*silo0\.txt \(mode 0640\); chmod 600 it": (
        lambda folder: (folder / "study" / "silo0.txt").chmod(0o640),
    ),
    r"others can open .*counters/silo0-\w+\.txt \(mode 0604\)": (
        lambda folder: counter_of(folder).chmod(0o604),
    ),
}


@pytest.mark.parametrize(
    ("why", "change"), [(why, change) for why, changes in CHANGES.items() for change in changes]
)
def test_a_file_that_is_not_the_sites_newest_is_refused_in_one_line(why, change, site, tmp_path):
    change(tmp_path)
    for _ in range(2):
        with pytest.raises(RefusedError, match=rf"^{site.path}: .*{why}") as refused, site.open():
            pass
        assert "\n" not in str(refused.value)
    assert not (tmp_path / "nowhere.txt").exists()


def test_a_copy_is_refused_beside_the_file_and_in_its_place(site, tmp_path):
    other = CountedFile(str(tmp_path / "other" / "silo0.txt"), site.counters)
    shutil.copytree(tmp_path / "study", tmp_path / "other")
    with pytest.raises(RefusedError, match="without its counter"), other.open():
        pass
    with site.open() as lines:
        lines.append(b"four\n")
    shutil.copy(other.path, site.path)
    with pytest.raises(RefusedError, match="not as it was last used"), site.open():
        pass


def test_both_files_put_back_together_are_not_noticed(site, tmp_path):
    """The page says so."""
    put_back(tmp_path, "study")
    put_back(tmp_path, "counters")
    with site.open() as lines:
        assert lines.content == b"one\ntwo\n"


@pytest.mark.parametrize("written", [True, False])
def test_a_write_that_a_crash_cut_is_there_or_is_not(written, site, tmp_path):
    """The counter has announced it. The process died before or after it was on the disk."""
    counter = counter_of(tmp_path)
    *lines, last = counter.read_text().splitlines(keepends=True)
    assert (last.split()[0], lines[-1].split()[0]) == ("now", "next")
    counter.write_text("".join(lines))
    if not written:
        os.truncate(site.path, len(b"one\ntwo\n"))
    left = b"one\ntwo\nthree\n" if written else b"one\ntwo\n"
    for _ in range(2):
        with site.open() as found:
            assert found.content == left


def test_lines_that_no_write_announced_are_refused(site, tmp_path):
    with open(site.path, "ab") as file:
        file.write(b"four\n")
    with pytest.raises(RefusedError, match="not as it was last used"), site.open():
        pass


def test_an_older_counter_is_refused(site, tmp_path):
    """The file of that time may have had other lines after it."""
    put_back(tmp_path, "counters")
    with pytest.raises(RefusedError, match="not as it was last used"), site.open():
        pass


def test_one_process_at_a_time_has_it_open(site, tmp_path):
    (tmp_path / "link").symlink_to(tmp_path / "study")
    through = CountedFile(str(tmp_path / "link" / "silo0.txt"), site.counters)
    with site.open() as lines:
        for second in (site, through):
            with pytest.raises(RefusedError, match=r"silo0\.txt: another process has it open$"):
                second.open()
        lines.append(b"four\n")
    with through.open() as lines:
        assert lines.content.endswith(b"four\n")


def test_only_its_owner_can_open_it(tmp_path):
    before = os.umask(0)
    try:
        with CountedFile(
            str(tmp_path / "a" / "b" / "silo0.txt"), str(tmp_path / "c")
        ).open() as lines:
            lines.append(b"one\n")
    finally:
        os.umask(before)
    modes = {path.name: path.stat().st_mode & 0o777 for path in tmp_path.rglob("*")}
    [counter] = (tmp_path / "c").iterdir()
    assert modes["b"] == modes["c"] == 0o700
    assert modes["silo0.txt"] == modes[counter.name] == 0o600


def test_a_file_that_is_replaced_while_it_is_open_takes_no_line(site, tmp_path):
    with site.open() as lines:
        shutil.copy(site.path, tmp_path / "copy.txt")
        (tmp_path / "copy.txt").replace(site.path)
        with pytest.raises(RefusedError, match=r"silo0\.txt was deleted or replaced"):
            lines.append(b"four\n")


def test_a_full_disk_leaves_whole_lines(tmp_path):
    """The part of a line that a full disk took is no beginning of the next line."""
    import resource
    import signal

    file = CountedFile(str(tmp_path / "study" / "silo0.txt"), str(tmp_path / "counters"))
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    try:
        with file.open() as lines:
            lines.append(b"x" * 99 + b"\n")
            resource.setrlimit(resource.RLIMIT_FSIZE, (150, before[1]))
            with pytest.raises(RefusedError, match="File too large"):
                lines.append(b"y" * 99 + b"\n")
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
            lines.append(b"z\n")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, ignored)
    with file.open() as lines:
        assert lines.content == b"x" * 99 + b"\nz\n"
    assert Path(file.path).stat().st_size == 102
