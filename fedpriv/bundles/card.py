"""The model card of a bundle: README.md as Hugging Face reads it."""

from __future__ import annotations

from collections.abc import Iterator

import yaml

from fedpriv.bundles.bundle import Bundle

WORDS = {
    "classes": ("classification", "predicts a class"),
    "logit": ("classification", "predicts one of two classes"),
    "number": ("regression", "predicts a number"),
    "log_hazard": (
        "regression",
        "predicts the logarithm of a hazard: a larger one is a larger risk",
    ),
    "raw": ("regression", "computes outputs of a task of its author's own"),
}
"""What a task is on Hugging Face, and in words."""
OF_A_ROW = ("observer", "unit", "adjacency", "method", "certified", "status")


def card(bundle: Bundle) -> str:
    """The text of README.md."""
    kind, does = WORDS[bundle.task]
    table = bundle.table is not None
    front = {
        "license": bundle.licence,
        "library_name": "fedpriv",
        **({"pipeline_tag": f"tabular-{kind}"} if table else {}),
        "tags": ["federated-learning", "differential-privacy", *(["tabular"] if table else [])],
        "metrics": [*bundle.metrics],
    }
    text = yaml.safe_dump(front, sort_keys=False, allow_unicode=True)
    return f"---\n{text}---\n\n# {bundle.name}\n\n" + "\n".join(_lines(bundle, does)) + "\n"


def _lines(bundle: Bundle, does: str) -> Iterator[str]:
    yield f"The model {does}. {bundle.method} of fedpriv {bundle.version} trained it.\n"
    yield "## Privacy\n"
    yield (
        "The weights have a certificate: see the epsilons below and `certificate.csv`.\n"
        if bundle.valid
        else "**This model is NOT private**: see what no epsilon covers.\n"
    )
    yield f"Epsilons after the last round, at delta = {bundle.privacy['delta']}, noise from "
    yield f"randomness={bundle.privacy['randomness']}:\n"
    yield f"| {' | '.join(OF_A_ROW)} |\n|{' --- |' * len(OF_A_ROW)}"
    for row in bundle.certificate:
        yield f"| {' | '.join(str(row.get(name)) for name in OF_A_ROW)} |"
    yield "\nNo epsilon covers:\n"
    yield from (f"- {text}" for text in bundle.not_covered)
    yield "\nWhat each part is made of (`diagnostic`: of private records, without noise):\n"
    yield from (f"- {part}: {label}" for part, label in bundle.labels.items())
    yield f"\n## Intended use\n\n{bundle.intended_use}\n"
    yield "## Limits\n"
    yield "The metrics describe the test records of this run, not yours. A score supports a"
    yield "person's decision and does not replace it.\n"
    yield from (f"- {name}: {value}" for name, value in bundle.metrics.items())
    yield "\n## Input\n"
    if bundle.table is None:
        yield f"An array of records. {bundle.prepared}"
    else:
        yield "A table with these columns, in any order; other columns are not read:\n"
        for name, about in bundle.table["schema"]["features"].items():
            yield f"- {name}: {_feature(about)}"
    if bundle.classes:
        yield f"\nClasses: {', '.join(bundle.classes)}."
    if len(bundle.classes) == 2:
        yield f"The second is predicted where its probability is above {bundle.threshold:g}."
    yield "\n## Use the model\n"
    yield "```\nfedpriv predict path/to/this/folder new.csv --out scores.csv\n```"


def _feature(about: dict[str, list[float] | list[str] | None]) -> str:
    if values := about.get("values"):
        return f"one of {', '.join(map(str, values[:20]))}{', ...' if len(values) > 20 else ''}"
    bounds = about.get("range")
    return "a number" if bounds is None else f"a number from {bounds[0]} to {bounds[1]}"
