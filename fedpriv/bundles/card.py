"""The model card of a bundle: README.md as Hugging Face reads it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import yaml

from fedpriv.bundles.bundle import NUMBER, Bundle
from fedpriv.data.table.written import example_of

WORDS = {
    "classes": ("classification", "predicts a class"),
    "logit": ("classification", "predicts one of two classes"),
    "number": ("regression", "predicts a number"),
    "log_hazard": ("regression", "predicts the logarithm of a hazard (larger: more at risk)"),
    "raw": ("regression", "computes outputs of a task of its author's own"),
}
"""What a task is on Hugging Face, and in words."""
OF_A_ROW = ("observer", "unit", "adjacency", "method", "certified", "status")
PRIVATE = "The weights have a certificate: see the epsilons below and `certificate.csv`."
NOT_PRIVATE = "**This model is NOT private**: see what no epsilon covers."
TEXT = """\
---
{front}---

# {bundle.name}

The model {does}. {bundle.method} of fedpriv {bundle.version} trained it.

## Privacy

{private}

Epsilons after the last round, at delta = {delta}, noise from randomness={randomness}:

{epsilons}

No epsilon covers:

{not_covered}

What each part is made of (`diagnostic`: of private records, without noise):

{labels}

## Intended use

{bundle.intended_use}

## Limits

The metrics describe the test records of this run, not yours. A score supports a person's
decision and does not replace it.

{metrics}

## Input

{records}

{outputs}
{second}

## Use the model

{use}
"""
USE = "```\nfedpriv predict path/to/this/folder new.csv --out scores.csv\n```"


def card(bundle: Bundle) -> str:
    """The text of README.md."""
    kind, does = WORDS[bundle.task]
    table = ["tabular"] if bundle.table else []
    front = {
        "license": bundle.licence,
        "library_name": "fedpriv",
        **({"pipeline_tag": f"tabular-{kind}"} if table else {}),
        "tags": ["federated-learning", "differential-privacy", *table],
        "metrics": [*bundle.metrics],
    }
    rows = [[str(row.get(name)) for name in OF_A_ROW] for row in bundle.certificate]
    head = [[*OF_A_ROW], ["---"] * len(OF_A_ROW)]
    second = f"The second is predicted where its probability is above {bundle.threshold:g}."
    return TEXT.format(
        bundle=bundle,
        front=yaml.safe_dump(front, sort_keys=False, allow_unicode=True),
        does=does,
        private=PRIVATE if bundle.valid else NOT_PRIVATE,
        **bundle.privacy,
        epsilons="\n".join(f"| {' | '.join(row)} |" for row in (*head, *rows)),
        not_covered=_list(bundle.not_covered),
        labels=_list(f"{part}: {label}" for part, label in bundle.labels.items()),
        metrics=_list(f"{name}: {value}" for name, value in bundle.metrics.items()),
        records=_records(bundle),
        outputs=_outputs(bundle),
        second=second if len(bundle.classes) == 2 else "",
        use=f"It has no network to predict with: {bundle.unsaved}." if bundle.unsaved else USE,
    )


def _list(lines: Iterable[str]) -> str:
    return "\n".join(f"- {line}" for line in lines)


def _outputs(bundle: Bundle) -> str:
    """What the outputs stand for."""
    if bundle.classes:
        return f"Classes: {', '.join(bundle.classes)}."
    if bundle.task != NUMBER or bundle.encoding is None:
        return ""
    origin, unit = bundle.encoding.schema.label.origin_and_unit
    return f"The number is {origin} plus {unit} times the network's output, also in `model.onnx`."


def _records(bundle: Bundle) -> str:
    """What the model reads."""
    if bundle.table is None:
        return f"An array. {bundle.prepared}"
    columns = bundle.table["schema"]["features"].items()
    head = "A table with these columns, in any order; other columns are not read:"
    return f"{head}\n\n{_list(f'{name}: {_feature(about)}' for name, about in columns)}"


def _feature(about: dict[str, Any]) -> str:
    if values := about.get("values"):
        return f"one of {', '.join(map(str, values[:20]))}{', ...' if len(values) > 20 else ''}"
    what = f"a date like {example_of(about['date'])}" if about.get("date") else "a number"
    bounds = about.get("range")
    return what if bounds is None else f"{what}, from {bounds[0]} to {bounds[1]}"
