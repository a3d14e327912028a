"""Parts of a page: every text is escaped here, and nowhere else."""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence


class Html(str):
    """Text that is HTML already."""


def escape(value: object) -> Html:
    """A value as HTML that shows it as text."""
    return (
        value if isinstance(value, Html) else Html(html.escape("" if value is None else str(value)))
    )


def tag(name: str, *children: object, cls: str = "", **attributes: str) -> Html:
    """An element with its children; what is no `Html` is escaped."""
    named = {"class": cls, **attributes} if cls else attributes
    inside = "".join(f' {key}="{html.escape(value)}"' for key, value in named.items())
    return Html(f"<{name}{inside}>{''.join(map(escape, children))}</{name}>")


def join(parts: Iterable[object]) -> Html:
    """Parts one after the other."""
    return Html("".join(map(escape, parts)))


def bullets(lines: Iterable[object]) -> Html:
    """A list; empty without a line."""
    items = [tag("li", line) for line in lines]
    return tag("ul", *items) if items else Html("")


def facts(pairs: Iterable[tuple[object, object]]) -> Html:
    """A list of names and what they are; pairs without content are left out."""
    rows = [
        tag("div", tag("dt", name), tag("dd", content))
        for name, content in pairs
        if content not in (None, "")
    ]
    return tag("dl", *rows)


def table(columns: Sequence[object], rows: Iterable[Sequence[object]], caption: str) -> Html:
    """A table that scrolls sideways in a narrow window, and folds into cards on a telephone."""
    head = tag("tr", *(tag("th", name, scope="col") for name in columns))
    body = [
        tag(
            "tr",
            *(tag("td", cell, **{"data-name": str(name)}) for name, cell in zip(columns, row)),
        )
        for row in rows
    ]
    inside = tag("table", tag("caption", caption), tag("thead", head), tag("tbody", *body))
    return tag("div", inside, cls="wide")


def number(value: float | str | None) -> str:
    """Four digits; "∞" for no limit, empty for nothing."""
    if value is None:
        return ""
    return "∞" if value == "inf" else f"{value:,.4g}" if isinstance(value, int | float) else value


def code(value: object) -> Html:
    """A text of the computer: a command, a digest."""
    return tag("code", value)


def section(title: str, *parts: object) -> Html:
    """A section with its heading."""
    return tag("section", tag("h2", title), *parts)
