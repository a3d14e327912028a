"""`fedpriv keys`: make, show, add, rotate and revoke the keys of parties."""

from __future__ import annotations

import argparse
import errno
import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from fedpriv.crypto.certificates import new_certificate
from fedpriv.crypto.key_files import key_path, read_key, read_roster, require_name, write_key
from fedpriv.crypto.roster import Roster, RosterEntry
from fedpriv.crypto.signatures import KEY_BYTES, SigningKey, VerificationKey
from fedpriv.errors import FedprivError
from fedpriv.util.file_locks import lock
from fedpriv.util.parsers import Parser, action_parser
from fedpriv.util.printing import say

EPILOG = """\
examples:
  fedpriv keys new server silo0 silo1 --keys keys --roster roster.csv
  fedpriv keys new silo2 --keys keys           # on the silo's machine; prints its public key
  fedpriv keys add silo2 KEY --roster roster.csv
  fedpriv keys show --roster roster.csv
  fedpriv keys rotate silo0 --keys keys --roster roster.csv
  fedpriv keys revoke silo1 --roster roster.csv
  fedpriv keys certificate silo0 --keys keys --certificates certificates
  fedpriv engine.roster=roster.csv engine.keys=keys ...
"""


def main(args: list[str]) -> None:
    """Run one of the actions. Raises FedprivError for what it cannot do; then nothing changes."""
    own = _parser().parse_args(args)
    if own.action == "certificate":
        for path in new_certificate(own.name, own.keys, own.certificates):
            say(path)
        return
    if own.action == "show":
        _show(read_roster(own.roster))
        return
    names = own.names if own.action == "new" else [own.name]
    for name in names:
        require_name(name)
    made = own.action == "new" and not own.keys.exists()
    try:
        with ExitStack() as locks:
            for folder in _changed_folders(own):
                locks.enter_context(_alone(folder))
            _change(own, names)
    except BaseException:
        if made:
            with suppress(OSError):  # it has keys, or was not made
                own.keys.rmdir()
        raise


def _changed_folders(own: argparse.Namespace) -> list[Path]:
    """The folders of the roster and of private keys, in an order that all processes share. Raises
    FedprivError for a roster in no folder; a missing folder of keys is made."""
    folders = set()
    if own.roster is not None:
        around = Path(os.path.realpath(own.roster)).parent  # the file itself is replaced
        if not around.is_dir():
            raise FedprivError(f"{own.roster}: no such folder")
        folders.add(around)
    if own.action == "new":
        own.keys.mkdir(mode=0o700, parents=True, exist_ok=True)
    if own.action in ("new", "rotate") and own.keys.is_dir():
        folders.add(own.keys.resolve())
    return sorted(folders)


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Context in which no other `fedpriv keys` changes a folder. A second one waits, and then reads
    what the first has written."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        try:
            lock(handle, wait=True)
        except OSError as error:
            if error.errno not in (errno.EBADF, errno.ENOLCK, errno.EOPNOTSUPP):
                raise  # those of network disks, which cannot lock a folder
        yield
    finally:
        os.close(handle)


def _change(own: argparse.Namespace, names: list[str]) -> None:
    """Carry out an action that changes keys or the roster."""
    if own.action == "new":
        _new(names, own.keys, own.roster)
    elif own.action == "rotate":
        _rotate(own.name, own.keys, own.roster)
    else:
        roster = read_roster(own.roster) if own.roster.exists() else Roster(())
        if own.action == "add":
            roster = roster.rotated(own.name, _public(own.key))
        else:
            roster = roster.revoked(own.name)
        roster.write(own.roster)
        _show(roster, own.name)


def _parser() -> Parser:
    about = "Long-term keys of parties. Private keys are readable for their owner only."
    parser, action = action_parser("fedpriv keys", about, EPILOG)
    new = action("new", "make keys, and write the public ones into the roster if one is named")
    new.add_argument("names", nargs="+", metavar="PARTY")
    new.add_argument("--keys", type=Path, required=True, metavar="FOLDER")
    new.add_argument("--roster", type=Path, metavar="FILE")
    add = action("add", "write a party's public key into the roster, and revoke the one before")
    add.add_argument("name", metavar="PARTY")
    add.add_argument("key", metavar="KEY", help="64 hexadecimal digits")
    rotate = action("rotate", "replace a party's key, and revoke the one before")
    rotate.add_argument("name", metavar="PARTY")
    rotate.add_argument("--keys", type=Path, required=True, metavar="FOLDER")
    revoke = action("revoke", "revoke a party's key")
    revoke.add_argument("name", metavar="PARTY")
    show = action("show", "show the roster with its fingerprints")
    own = action("certificate", "make a TLS key and its certificate, for a study of organisations")
    own.add_argument("name", metavar="PARTY", help="coordinator, or silo0, silo1, ...")
    own.add_argument("--keys", type=Path, required=True, metavar="FOLDER")
    own.add_argument("--certificates", type=Path, required=True, metavar="FOLDER")
    for one in (add, rotate, revoke, show):
        one.add_argument("--roster", type=Path, required=True, metavar="FILE")
    return parser


def _new(names: list[str], folder: Path, file: Path | None) -> None:
    known = read_roster(file) if file is not None and file.exists() else Roster(())
    for name in names:
        if names.count(name) > 1:
            raise FedprivError(f"{name}: is named twice")
        if key_path(folder, name).exists():
            raise FedprivError(_instead(name, folder, file, known))
        if name in known.keys:
            raise FedprivError(
                f"{file}: {name} has a key, and {folder} does not hold it; first revoke it: "
                f"fedpriv keys revoke {name} --roster {file}"
            )
    made = {name: SigningKey.generate() for name in names}
    for name, key in made.items():
        write_key(key_path(folder, name), key)
        known = known.rotated(name, key.verification_key)
    if file is not None:
        known.write(file)
    _show(known, *names)


def _instead(name: str, folder: Path, file: Path | None, known: Roster) -> str:
    """Why there is no new key where the folder holds one, with the command that helps."""
    path = key_path(folder, name)
    if file is not None and all(entry.party != name for entry in known.entries):
        public = read_key(path).verification_key.raw.hex()
        return f"{path}: exists; to use it: fedpriv keys add {name} {public} --roster {file}"
    where = "FILE" if file is None else file
    rotate = f"fedpriv keys rotate {name} --keys {folder} --roster {where}"
    return f"{path}: exists; to replace it: {rotate}"


def _rotate(name: str, folder: Path, file: Path) -> None:
    path = key_path(folder, name)
    before = read_key(path)
    roster = read_roster(file)
    spare = path.with_name(path.name + ".new")
    # After a revocation nothing is in use, and any key of the folder is replaced.
    if name in roster.keys and roster.key(name) != before.verification_key:
        # The end of a rotation that was cut off after it had written the roster.
        if not spare.exists() or roster.key(name) != read_key(spare).verification_key:
            raise FedprivError(f"{path}: is not the key of {name} in {file}")
        spare.replace(path)
        _show(roster, name)
        return
    key = SigningKey.generate()
    # Both keys are on disk until the roster holds the new one.
    write_key(spare, key)
    rotated = roster.rotated(name, key.verification_key)
    rotated.write(file)
    spare.replace(path)
    _show(rotated, name)


def _public(text: str) -> VerificationKey:
    try:
        return VerificationKey(bytes.fromhex(text))
    except ValueError:
        raise FedprivError(f"{text}: a public key has {2 * KEY_BYTES} hexadecimal digits") from None


def _show(roster: Roster, *names: str) -> None:
    """Print the keys of some parties, or of all."""
    shown = [entry for entry in roster.entries if not names or entry.party in names]
    width = max([len("party"), *(len(entry.party) for entry in shown)])
    say(f"{'party':{width}}  number  state    fingerprint" + " " * 30 + "public key")
    for entry in shown:
        say(_line(entry, width))


def _line(entry: RosterEntry, width: int) -> str:
    key = entry.key
    return (
        f"{entry.party:{width}}  {entry.number:6}  {entry.state:7}  {key.fingerprint}  "
        f"{key.raw.hex()}"
    )
