"""Write docs/reference/configuration.md and a page below it for each config group: every key.

Run `python -m scripts.reference` after a change to a component's arguments, defaults or docstring;
until then a test fails. The meaning of a key is the comment beside it in the yaml. Without a
comment, it is the line in the docstring of its class.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import yaml

from fedpriv.settings.experiment import GROUPS
from fedpriv.settings.run_options import RunOptions

ROOT = Path(__file__).parents[1]
CONF = ROOT / "conf"
PAGE = ROOT / "docs" / "reference" / "configuration.md"
PAGES = PAGE.with_suffix("")
"""Folder of the groups' pages."""
HEAD = """\
# Configuration

`algo=spider` chooses a component of a group, `algo.clip=0.5` sets its key, `rounds=50` a key
without a group. A default such as `preset.clip` is the data set's, see [below](#presets).
`fedpriv --cfg job` prints what a command comes to. `python -m scripts.reference` writes these
pages.
"""
ABOUT = {
    "data": "Which records and labels are used, which task they are for, and whose they are.",
    "allocator": "Who owns each training record, and which silo holds it.",
    "model": "Which network is trained.",
    "algo": "What a silo computes in a round, and what is done with the sum.",
    "optimizer": "How a local step follows its gradient.",
    "mechanism": "How one contribution is bounded and noised.",
    "accountant": "What epsilon and delta all recorded events add up to.",
    "aggregation": "How the parties sum, and who learns what while they do.",
    "engine": "Where the parties run: in this process, or each in its own.",
    "tracker": "Where metrics and certified epsilons are shown while a run goes on.",
}
"""What each group answers."""
TABLE = ["| key | default | meaning |", "| --- | --- | --- |"]
Values = dict[str, Any]


@dataclass(frozen=True)
class Section:
    """One yaml of a group.

    name: of the file.
    about: sentences above the table.
    rows: key, default and meaning.
    """

    name: str
    about: tuple[str, ...]
    rows: tuple[tuple[str, str, str], ...]


def main() -> None:
    """Write the pages, and remove those of groups that are gone."""
    PAGES.mkdir(exist_ok=True)
    current = pages()
    for file, text in current.items():
        file.write_text(text)
    for file in set(PAGES.glob("*.md")) - current.keys():
        file.unlink()


def pages() -> dict[Path, str]:
    """The correct text of each page."""
    found = {PAGE: _page([HEAD, *_index(), "## Without a group\n", *_options(), *_presets()])}
    for group in GROUPS:
        found[PAGES / f"{group}.md"] = _page([*_head(group), *_group(group)])
    return found


def _page(parts: list[str]) -> str:
    return "\n".join(line.rstrip() for part in parts for line in part.split("\n")).strip() + "\n"


def _index() -> Iterator[str]:
    yield "| group | default |"
    yield "| --- | --- |"
    for group in ABOUT:
        yield f"| [{group}]({PAGES.name}/{group}.md) | `{_chosen(group)}` |"
    figures = CONF / "experiment"
    names = sorted(file.relative_to(figures).with_suffix("") for file in figures.rglob("*.yaml"))
    yield "\n`experiment=name` chooses the overrides and the sweep of a figure of a"
    yield "[paper](../papers/index.md), which `fedpriv reproduce` or `fedpriv replicate` draws:"
    yield " ".join(f"`{name.as_posix()}`" for name in names) + "\n"


def _head(group: str) -> Iterator[str]:
    yield f"# {group}\n"
    yield f"{ABOUT[group]}\n"


def _chosen(group: str) -> str | None:
    """The name that a command without a choice has."""
    choices = _loaded(CONF / "config.yaml")["defaults"]
    found = (choice[group] for choice in choices if isinstance(choice, dict) and group in choice)
    return next(found, None)


def _options() -> Iterator[str]:
    file = CONF / "config.yaml"
    values = yaml.safe_load(file.read_text())
    meanings = _comments(file)
    yield from TABLE
    for field in fields(RunOptions):
        yield _row(field.name, typed(values[field.name]), _cell(meanings.get(field.name, "")))


def _presets() -> Iterator[str]:
    """A row for each data set, with what differs from the first row."""
    general = _loaded(CONF / "config.yaml")
    usual = {"rounds": general["rounds"]} | general["preset"]
    yield "\n## Presets\n"
    yield "A data set's usual settings, which algorithms and allocators read as `preset.key`."
    yield "`silo_` stands before those of methods that train on a whole silo.\n"
    yield "| data | rounds and preset |"
    yield "| --- | --- |"
    yield f"| all, unless below | {_words(usual)} |"
    for file in sorted((CONF / "data").glob("*.yaml")):
        values = _loaded(file)
        own = {"rounds": values.get("rounds", usual["rounds"])} | values.get("preset", {})
        other = {key: value for key, value in own.items() if value != usual[key]}
        yield f"| {file.stem} | {_words(other)} |"


def _words(values: Values) -> str:
    return " ".join(f"`{key}={typed(value)[1:-1]}`" for key, value in values.items())


def _group(group: str) -> Iterator[str]:
    """A section for each file. What an earlier section says is a link to it, with the default where
    that differs."""
    first: dict[tuple[str, str], tuple[str, str]] = {}
    told: dict[str, str] = {}
    for file in sorted((CONF / group).glob("*.yaml")):
        section = _section(group, file)
        yield f"## {group}={section.name}\n"
        for text in section.about:
            name = told.setdefault(text, section.name)
            yield f"{text if name == section.name else f'As {_link(group, name)}.'}\n"
        earlier: dict[str, list[str]] = {}
        own: list[str] = []
        for key, default, meaning in section.rows:
            name, usual = first.setdefault((key, meaning), (section.name, default))
            if name == section.name:
                own.append(_row(key, default, meaning))
            else:
                value = "" if default == usual else f"={default[1:-1]}"
                earlier.setdefault(name, []).append(f"`{key}{value}`")
        for name, keys in earlier.items():
            yield f"As in {_link(group, name)}: {', '.join(keys)}.\n"
        if own:
            yield from (*TABLE, *own, "")


def _link(group: str, name: str) -> str:
    return f"[{group}={name}](#{group}{name})"


def _section(group: str, file: Path) -> Section:
    """A file that changes keys of another one shows only these, in a row where it says why."""
    values = _loaded(file)
    component = values.get(group, values) if group == "data" else values
    bases = [
        base for base in values.get("defaults", []) if isinstance(base, str) and base != "_self_"
    ]
    own = {key: value for key, value in component.items() if key not in ("_target_", "defaults")}
    about, meanings = [], _inherited(own)
    if bases:
        base = CONF / group / f"{bases[0]}.yaml"
        said = _comments(file)
        changed = {key: own.pop(key) for key in [*own] if key not in said}
        but = f", but {_words(changed)}" if changed else ", but" if own else ""
        about.append(f"As `{group}={base.stem}`{but}{':' if own else '.'}")
        meanings |= _comments(base)
    cls = _class(component.get("_target_") or _loaded(base)["_target_"])
    if "_target_" in component:
        about.insert(0, _about(cls))
    meanings |= _comments(file)
    rows = (
        (key, typed(value), _cell(meanings.get(key) or from_docstring(cls, key)))
        for key, value in own.items()
    )
    return Section(file.stem, tuple(about), tuple(rows))


def _loaded(file: Path) -> Values:
    values: Values = yaml.safe_load(file.read_text())
    return values


def _class(target: str) -> type[Any]:
    from importlib import import_module

    module, _, name = target.rpartition(".")
    cls: type[Any] = getattr(import_module(module), name)
    return cls


def _about(cls: type[Any]) -> str:
    """The first paragraph of the class' docstring."""
    return " ".join(inspect.cleandoc(cls.__doc__ or "").split("\n\n")[0].split())


def _row(key: str, default: str, meaning: str) -> str:
    return f"| `{key}` | {default} | {meaning} |"


def typed(value: object) -> str:
    """The value as on a command line; an interpolation as the key that it refers to."""
    if isinstance(value, str):
        return (
            "`"
            + re.sub(r"\$\{(?:oc\.env:(\w+),null|\.?([\w.]+))\}", lambda m: m[1] or m[2], value)
            + "`"
        )
    return (
        f"`{'null' if value is None else str(value).lower() if isinstance(value, bool) else value}`"
    )


def _comments(file: Path) -> dict[str, str]:
    """The comment after each key's value."""
    found = re.findall(r"^ *(\w+): *[^#\n]*?# (.+)$", file.read_text(), re.MULTILINE)
    return dict(found)


def _inherited(values: Values) -> dict[str, str]:
    """Meanings of keys whose default is another key's value: the same as that key's."""
    general = _comments(CONF / "config.yaml")
    shared = {f"${{preset.{key}}}": text for key, text in general.items()} | {
        "${rounds}": general["rounds"]
    }
    shared["${accountant.delta}"] = _comments(CONF / "accountant" / "rdp.yaml")["delta"]
    return {key: shared[str(value)] for key, value in values.items() if str(value) in shared}


def from_docstring(cls: type[Any], key: str) -> str:
    """The text after `key:` in a docstring, also with several keys before the colon."""
    names = r"(?:\w+, )*"
    begin = rf"(?:^|[.\n]\s*){names}{key}(?:, \w+)*: "
    end = rf"(?=\.\s+{names}\w+: |\n\n|\Z)"
    for base in cls.__mro__:
        found = re.search(
            f"{begin}(.+?){end}", inspect.cleandoc(base.__dict__.get("__doc__") or ""), re.DOTALL
        )
        if found:
            return " ".join(found[1].split()).rstrip(".")
    return ""


def _cell(text: str) -> str:
    return text.replace("|", "\\|").strip()


if __name__ == "__main__":
    main()
