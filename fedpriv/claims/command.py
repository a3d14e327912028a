"""`fedpriv certify claim.yaml ...`: what stated epsilons are worth.

Exit code 0 if every statement holds, 1 if one does not or a budget is exceeded, 2 for bad input.
"""

from __future__ import annotations

import argparse
import math
import sys
from pathlib import Path

import yaml

from fedpriv.claims import draft
from fedpriv.claims.reading import read
from fedpriv.claims.report import as_html, as_json, show
from fedpriv.claims.schema import PrivacyClaim
from fedpriv.claims.verdicts import HOLDS, Finding, judge
from fedpriv.errors import ConfigError, FedprivError, require
from fedpriv.util.consoles import wide_console
from fedpriv.util.durable_files import replace_file
from fedpriv.util.parsers import Parser
from fedpriv.util.plain_numbers import plain_number
from fedpriv.util.printing import say

SCHEMA_FILE = Path(__file__).with_name("claim.schema.json")


def main(args: list[str]) -> None:
    """Judge every claim file. Raises SystemExit(1) if a statement does not hold."""
    parser = Parser("fedpriv certify", allow_abbrev=False)
    parser.add_argument("files", nargs="*", type=Path, metavar="claim.yaml")
    parser.add_argument("--json", action="store_true", help="print JSON instead of tables")
    parser.add_argument("--html", type=Path, metavar="FILE", help="write a page too")
    parser.add_argument("--budget", metavar="EPSILON", help="largest certified epsilon allowed")
    parser.add_argument("--draft", action="store_true", help="print a claim to fill in")
    parser.add_argument("--schema", action="store_true", help="print the JSON schema of a claim")
    own = parser.parse_args(args)
    _check_asked(own)
    if own.schema:
        say(SCHEMA_FILE.read_text(), end="")
        return
    if own.draft:
        say(yaml.safe_dump(draft.claim(), sort_keys=False), end="")
        return
    if not own.files:
        raise FedprivError("certify: name a claim file, or --draft for one to fill in")
    budget = budget_of(own.budget)
    reports = [(claim, judge(claim)) for claim in map(read, own.files)]
    if own.json:
        say(as_json(reports), end="")
    else:
        for claim, findings in reports:
            show(wide_console(), claim, findings)
    if own.html:
        replace_file(own.html, as_html(reports).encode())
    late = [line for claim, findings in reports for line in failures(claim, findings, budget)]
    for line in late:
        say(f"fedpriv: {line}", file=sys.stderr)
    if late:
        sys.exit(1)


def _check_asked(own: argparse.Namespace) -> None:
    """Refuse files that would pass without a verdict, and a page that would replace a claim."""
    for name, asked in (("--schema", own.schema), ("--draft", own.draft)):
        if asked and own.files:
            raise ConfigError(name, own.files[0], f"{name} judges no claim: name no claim file")
    if own.html and own.html.suffix in (".yaml", ".yml", ".json"):
        raise ConfigError("--html", own.html, "the page to write, such as privacy.html")


def budget_of(given: str | None, key: str = "--budget") -> float:
    """The largest epsilon that is allowed; inf for no limit. Raises ConfigError."""
    if given is None:
        return math.inf
    try:
        budget = plain_number(given)
    except ValueError:
        budget = math.nan
    require(0 < budget < math.inf, key, given, "a positive epsilon")
    return budget


def failures(claim: PrivacyClaim, findings: list[Finding], budget: float) -> list[str]:
    """One line for each statement that does not hold or exceeds the budget."""
    lines = []
    for finding in findings:
        if not finding.verdict:
            continue
        epsilon = finding.certified.epsilon
        about = f"{claim.name or 'claim'}, {finding.observer}, {finding.unit}"
        if finding.verdict != HOLDS:
            lines.append(f"{about}: {finding.verdict}")
        elif epsilon > budget:
            lines.append(f"{about}: certified {epsilon:.4g} exceeds the budget of {budget:g}")
    return lines
