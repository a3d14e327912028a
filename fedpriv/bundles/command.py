"""`fedpriv predict` and `fedpriv export`."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

from fedpriv.bundles.bundle import ONNX, place_of, read_bundle
from fedpriv.bundles.model import SHOWN, load_model
from fedpriv.bundles.write import write_bundle
from fedpriv.errors import FedprivError, require
from fedpriv.util.durable_files import replace_file
from fedpriv.util.parsers import Parser
from fedpriv.util.printing import say


def predict(words: list[str]) -> None:
    """Score the rows of a file with the model of a bundle."""
    parser = Parser("fedpriv predict", description=predict.__doc__)
    parser.add_argument("bundle", type=Path, help="a bundle, or the folder of a run")
    parser.add_argument("file", type=Path, help="a table (CSV, Parquet), or an array (.npy)")
    parser.add_argument("--out", type=Path, help="CSV file to write; default: print it")
    parser.add_argument("--onnx", action="store_true", default=None, help="use its model.onnx")
    for name in ("separator", "decimal", "encoding"):
        parser.add_argument(f"--{name}", help=f"of the table, if not as in training (data.{name})")
    args = parser.parse_args(words)
    model = load_model(args.bundle, onnx=args.onnx)
    given = {name: getattr(args, name) for name in ("separator", "decimal", "encoding")}
    model = model.reading({name: value for name, value in given.items() if value is not None})
    frame, rows = model.scores(args.file)
    for note in rows.notes:
        say(f"{args.file}: {note}", file=sys.stderr)
    if rows.refused:
        lines = [f"line {rows.lines[row]}: {why}" for row, why in sorted(rows.refused.items())]
        more = f"; and {len(lines) - SHOWN} more" if len(lines) > SHOWN else ""
        say(
            f"{args.file}: {len(lines)} of {len(frame)} rows cannot be read: "
            f"{'; '.join(lines[:SHOWN])}{more}",
            file=sys.stderr,
        )
    text = frame.to_csv(index=False, lineterminator="\n")
    if args.out is None:
        say(text, end="")
        return
    replace_file(args.out, text.encode())
    say(args.out)


def export(words: list[str]) -> None:
    """Rewrite the bundle of a run, with a licence, an intended use, a threshold or a model.onnx."""
    parser = Parser("fedpriv export", description=export.__doc__)
    parser.add_argument("run", type=Path, help="the folder of a run, or a bundle")
    parser.add_argument("--out", type=Path, help="folder to write; default: where the bundle is")
    parser.add_argument("--name", help="name of the model")
    parser.add_argument("--licence", "--license", help="as Hugging Face names it, such as mit")
    parser.add_argument("--intended-use", help="what the model is for")
    parser.add_argument(
        "--threshold", type=float, help="of two classes, predict the second above this probability"
    )
    parser.add_argument("--onnx", action="store_true", help="write model.onnx as well")
    args = vars(parser.parse_args(words))
    place = place_of(args.pop("run"))
    out, onnx = args.pop("out") or place, args.pop("onnx")
    bundle = read_bundle(place)
    given = {name: value for name, value in args.items() if value is not None}
    if "threshold" in given:
        require(0 < given["threshold"] < 1, "--threshold", given["threshold"], "from 0 to 1")
        require(len(bundle.classes) == 2, "--threshold", given["threshold"], "two classes")
    bundle = replace(bundle, **given)
    content = b""
    if onnx:
        if bundle.network is None:
            raise FedprivError(f"{place}: it has no network to write: {bundle.unsaved}")
        from fedpriv.bundles.network import load_network
        from fedpriv.bundles.onnx_file import onnx_bytes

        network = load_network(bundle.network, bundle.tensors)
        content = onnx_bytes(network, bundle.network["shape"], bundle.network["dtype"])
    write_bundle(bundle, out)
    if onnx:
        replace_file(out / ONNX, content)
    say(out)
