"""A table with notes, on the terminal and as text: what all tables of runs share."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence

import pandas as pd
from rich.console import Console
from rich.table import Table


class NotedTable(ABC):
    """Rows for a reader, with what has to be said about them."""

    @abstractmethod
    def frame(self) -> pd.DataFrame:
        """The unrounded numbers."""

    @abstractmethod
    def shown(self) -> pd.DataFrame:
        """The rows as they are printed; all cells are texts."""

    @abstractmethod
    def notes(self) -> Sequence[str]:
        """Sentences below the table."""

    def print(self, console: Console) -> None:
        """Print table and notes."""
        table = Table()
        frame = self.shown()
        for name in frame.columns:
            table.add_column(str(name), overflow="fold")
        for row in frame.itertuples(index=False):
            table.add_row(*map(str, row))
        console.print(table)
        for note in self.notes():
            console.print(note, soft_wrap=True)

    def csv(self) -> str:
        """The unrounded numbers."""
        return self.frame().to_csv(index=False, lineterminator="\n")

    def markdown(self) -> str:
        """The table as text, then the notes."""
        frame = self.shown()
        rows = [list(frame.columns), ["---"] * len(frame.columns), *frame.values.tolist()]
        escaped = [[str(cell).replace("|", "\\|") for cell in row] for row in rows]
        lines = [f"| {' | '.join(row)} |" for row in escaped]
        return "\n".join([*lines, "", *(f"- {note}" for note in self.notes())]) + "\n"

    def latex(self) -> str:
        """The table as text, with booktabs; the notes are comments."""
        frame = self.shown()
        frame.columns = pd.Index([tex(name) for name in frame.columns])
        body = frame.map(tex).to_latex(index=False, column_format="l" * len(frame.columns))
        return "".join(f"% {note}\n" for note in self.notes()) + body


FORMATS: dict[str, Callable[[NotedTable], str]] = {
    ".csv": NotedTable.csv,
    ".md": NotedTable.markdown,
    ".tex": NotedTable.latex,
}
"""Writer of each file suffix."""

SPECIAL = {
    **{char: f"\\{char}" for char in "&%$#_{}"},
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "\\": r"\textbackslash{}",
    "±": r"$\pm$",
}


def tex(text: str) -> str:
    """A cell in LaTeX, with its special characters."""
    return r"$\infty$" if text == "inf" else "".join(SPECIAL.get(char, char) for char in text)
