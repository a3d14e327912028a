"""A report of a run or a sweep for a data protection officer: one page, and the same as JSON.

    fedpriv report outputs/breast_cancer/uldp_avg/<folder> --purpose "..." --sign private.pem
    fedpriv report outputs/breast_cancer/uldp_avg/<folder> --figure
    fedpriv report --verify report.html --key public.pem
    fedpriv report --verify report.html outputs/breast_cancer/uldp_avg/<folder>

The page says what was trained on whose data, who sees what, what is certified and under which
assumptions, and what is not covered. It needs no script and loads nothing. Nothing that the folder
names is imported. A valid signature says that the owner of a key made the file, and that no byte
has changed; compare the key with the one that the signer gave you (--key).

Exit code of --verify: 0 unaltered, 1 altered or changed, 2 a file that cannot be read.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from fedpriv.errors import ConfigError, require
from fedpriv.reports.assessment.contents import contents
from fedpriv.reports.assessment.folder_files import text
from fedpriv.reports.assessment.page import page
from fedpriv.reports.assessment.signing import (
    canonical,
    sign_page,
    sign_values,
    signing_key,
    verification_key,
)
from fedpriv.reports.assessment.verify import AlteredError, changed_files, verify
from fedpriv.reports.audit_file import AUDIT
from fedpriv.settings.words import writing
from fedpriv.util.durable_files import replace_file
from fedpriv.util.parsers import Parser
from fedpriv.util.printing import say

DEFAULT_FIGURE = Path("privacy_utility.png")


def main(words: list[str]) -> None:
    """Write or check a report. Raises SystemExit(1) for one that is altered."""
    args = _parser().parse_args(words)
    if args.verify is None:
        require(args.folder is not None, "folder", "", "a folder of a run or a sweep")
        require(args.key is None, "--key", args.key, "for --verify; to sign, use --sign")
        _write(args)
    else:
        _verify(args)


def _parser() -> Parser:
    parser = Parser("fedpriv report", description=__doc__)
    parser.add_argument("folder", nargs="?", type=Path, help="folder of a run or of a sweep")
    parser.add_argument(
        "--out", type=Path, help="page to write, .html (default: report.html in the folder)"
    )
    parser.add_argument(
        "--figure",
        nargs="?",
        type=Path,
        const=DEFAULT_FIGURE,
        metavar="FILE",
        help="also draw metric and epsilon, as fedpriv figure does (default: "
        f"{DEFAULT_FIGURE} in the folder)",
    )
    parser.add_argument("--purpose", default="", help="what the training is for")
    parser.add_argument("--controller", default="", help="who is responsible for the processing")
    parser.add_argument(
        "--audit",
        type=Path,
        action="append",
        metavar="FOLDER",
        help="folder of fedpriv audit of the same settings (default: the folder audit in it)",
    )
    parser.add_argument(
        "--public",
        action="store_true",
        help="leave out what is computed from private records without noise",
    )
    parser.add_argument(
        "--no-recompute", action="store_true", help="do not account the epsilons anew"
    )
    parser.add_argument("--sign", type=Path, metavar="KEY", help="Ed25519 private key, PEM")
    parser.add_argument("--verify", type=Path, metavar="FILE", help="report.html or report.json")
    parser.add_argument("--key", type=Path, help="the signer's public key, PEM")
    return parser


def _write(args: argparse.Namespace) -> None:
    out = args.out or args.folder / "report.html"
    require(out.suffix == ".html", "--out", out, "a file that ends in .html")
    require(args.figure is None or not args.public, "--figure", args.figure, "not with --public")
    key = signing_key(args.sign) if args.sign else None
    beside = args.folder / "audit"
    audits = args.audit or ([beside] if (beside / AUDIT).is_file() else [])
    values = contents(
        args.folder,
        audits=audits,
        purpose=args.purpose,
        controller=args.controller,
        public=args.public,
        recompute=not args.no_recompute,
    )
    if key is not None:
        public = key.verification_key
        values["signer"] = {"key": public.raw.hex(), "fingerprint": public.fingerprint}
    made = page(values)
    as_json = canonical(values if key is None else sign_values(values, key))
    with writing(out):
        replace_file(out, made if key is None else sign_page(made, key))
        replace_file(out.with_suffix(".json"), as_json)
    for line in values["alarms"]:
        say(line, file=sys.stderr)
    say(out)
    say(out.with_suffix(".json"))
    if args.figure is not None:
        from fedpriv.reports.privacy_utility import main as draw_figure  # matplotlib

        inside = args.figure == DEFAULT_FIGURE
        figure = args.folder / DEFAULT_FIGURE if inside else args.figure
        draw_figure([str(args.folder), "--out", str(figure)])
    if key is not None:
        say(f"signed with the key {key.verification_key.fingerprint}")


def _verify(args: argparse.Namespace) -> None:
    for option in ("out", "sign", "audit", "figure"):
        if getattr(args, option) is not None:
            raise ConfigError(f"--{option}", getattr(args, option), "not together with --verify")
    key = verification_key(args.key) if args.key else None
    try:
        found = verify(args.verify, key)
    except AlteredError as error:
        _refuse(f"{args.verify}: {error}")
    values = found.values
    about = text(f"unaltered since {values['made']}, about the folder {values['folder']}")
    say(f"{args.verify}: {about}")
    say(f"key: {found.key.fingerprint}")
    if key is None:
        say("Anybody can sign with a key of their own: compare this one with the signer's (--key).")
    if found.rendered is False:
        say("Made by another version of fedpriv: the page was not compared with its contents.")
    if args.folder is None:
        say("The folder was not looked at: name it to see whether its files are still the same.")
        return
    if changed := changed_files(values, args.folder):
        _refuse(f"{args.folder} is not the folder of this report: {text('; '.join(changed))}")
    say(f"{args.folder}: the files are those of the report")


def _refuse(line: str) -> None:
    say(f"fedpriv: REFUSED: {line}", file=sys.stderr)
    sys.exit(1)
