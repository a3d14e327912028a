"""Command lines with actions, such as `fedpriv keys new`."""

from __future__ import annotations

import argparse
from collections.abc import Callable


def action_parser(
    command: str, description: str, epilog: str
) -> tuple[argparse.ArgumentParser, Callable[[str, str], argparse.ArgumentParser]]:
    """A parser of a command line that names one of several actions in `action`, and what adds an
    action, from its name and its help.

    command: name in usage and errors, such as "fedpriv keys".
    epilog: examples, printed as they are.
    """
    parser = argparse.ArgumentParser(
        prog=command,
        description=description,
        epilog=epilog,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    actions = parser.add_subparsers(dest="action", required=True)

    def action(name: str, text: str) -> argparse.ArgumentParser:
        return actions.add_parser(name, help=text, description=text, allow_abbrev=False)

    return parser, action
