"""Parsers of command lines: flags, and actions as in `fedpriv keys new`."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any, NoReturn

from fedpriv.errors import FedprivError
from fedpriv.util.plain_numbers import plain, plain_number


class Parser(argparse.ArgumentParser):
    """A parser of flags that reports an error in one line, and prints its description as it is.
    Numbers are written as in other programs."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.formatter_class = argparse.RawDescriptionHelpFormatter
        self.register("type", int, lambda text: int(plain(text)))
        self.register("type", float, plain_number)

    def error(self, message: str) -> NoReturn:
        """Raises FedprivError."""
        raise FedprivError(f"{message}; see {self.prog} --help")


def action_parser(
    command: str, description: str, epilog: str
) -> tuple[Parser, Callable[[str, str], Parser]]:
    """A parser of a command line that names one of several actions in `action`, and what adds an
    action, from its name and its help.

    command: name in usage and errors, such as "fedpriv keys".
    epilog: examples, printed as they are.
    """
    parser = Parser(command, description=description, epilog=epilog, allow_abbrev=False)
    actions = parser.add_subparsers(dest="action", required=True)

    def action(name: str, text: str) -> Parser:
        return actions.add_parser(name, help=text, description=text, allow_abbrev=False)

    return parser, action
