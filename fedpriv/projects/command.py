"""`fedpriv init`: write a small project that trains at once."""

from __future__ import annotations

import argparse
import os
import shutil
import tempfile
from pathlib import Path

from fedpriv.errors import FedprivError
from fedpriv.projects.files import RUN, project_files


def main(words: list[str]) -> None:
    """Write the project that the command line names. Raises FedprivError for a folder that holds
    anything."""
    parser = argparse.ArgumentParser("fedpriv init", description=__doc__)
    parser.add_argument("folder", type=Path, help="a new or empty folder")
    parser.add_argument("--method", action="store_true", help="with a method of your own")
    parser.add_argument("--model", action="store_true", help="with a model of your own")
    args = parser.parse_args(words)
    write_project(args.folder, project_files(method=args.method, model=args.model))
    print(f"{args.folder}: read README.md, or train at once:\n\ncd {args.folder}\n{RUN}")


def write_project(folder: Path, files: dict[str, str]) -> None:
    """Write files below a folder: all of them, or none.

    files: text by path.

    Raises FedprivError for a folder that holds anything, and OSError.
    """
    if folder.is_dir() and any(folder.iterdir()):
        raise FedprivError(f"{folder}: is not empty; name a new folder")
    if folder.exists() and not folder.is_dir():
        raise FedprivError(f"{folder}: is a file; name a new folder")
    folder = folder.resolve()  # "." and links have no name of their own to replace
    folder.parent.mkdir(parents=True, exist_ok=True)
    made = Path(tempfile.mkdtemp(dir=folder.parent, prefix=f".{folder.name}."))
    moved: list[Path] = []
    try:
        for name, text in files.items():
            (made / name).parent.mkdir(parents=True, exist_ok=True)
            (made / name).write_text(text, encoding="utf-8")
        if not folder.exists():
            made.chmod(0o755)
            os.replace(made, folder)
            return
        # Somebody may be in the empty folder, so that it has to stay.
        for path in made.iterdir():
            moved.append(folder / path.name)
            os.replace(path, moved[-1])
        made.rmdir()
    except BaseException:
        for path in (made, *moved):
            shutil.rmtree(path, ignore_errors=True) if path.is_dir() else path.unlink(True)
        raise
