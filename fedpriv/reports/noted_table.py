"""A table with notes, on the terminal and as text: what all tables of runs share."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

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


SPECIAL = {
    **{char: f"\\{char}" for char in "&%$#_{}"},
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "\\": r"\textbackslash{}",
    "±": r"$\pm$",
}


def tex(text: str) -> str:
    """A text in LaTeX, with its special characters."""
    return "".join(SPECIAL.get(char, char) for char in text)
