"""Run the notebooks of docs/notebooks and keep what they show.

`python -m scripts.notebooks [name ...]` executes each code cell in order, in an empty folder, and
writes its outputs by Jupyter's rules: what is printed, and the value of a last expression as PNG,
as HTML and as text. It needs no Jupyter.
"""

from __future__ import annotations

import ast
import base64
import contextlib
import io
import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

NOTEBOOKS = Path(__file__).parents[1] / "docs" / "notebooks"
Output = dict[str, Any]


def main(names: list[str]) -> None:
    """Execute the named notebooks, or all."""
    os.environ["COLUMNS"] = "100"
    for path in sorted(NOTEBOOKS.glob("*.ipynb")):
        if names and path.stem not in names:
            continue
        with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
            notebook = executed(json.loads(path.read_text()))
        path.write_text(json.dumps(notebook, indent=1, ensure_ascii=False) + "\n")


def executed(notebook: dict[str, Any]) -> dict[str, Any]:
    """The notebook with the outputs of its code cells, run in the current folder."""
    names: dict[str, Any] = {"__name__": "__main__"}
    count = 0
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            count += 1
            cell["execution_count"] = count
            cell["outputs"] = run_cell("".join(cell["source"]), names, count)
    return notebook


def run_cell(source: str, names: dict[str, Any], count: int) -> list[Output]:
    """Execute a cell, and return its outputs.

    names: of the notebook, which the cell may change.
    count: number of the cell.
    """
    body = ast.parse(source).body
    last = body.pop() if body and isinstance(body[-1], ast.Expr) else None
    printed, value = io.StringIO(), None
    with contextlib.redirect_stdout(printed):
        exec(compile(ast.Module(body, []), f"cell {count}", "exec"), names)
        if isinstance(last, ast.Expr):
            value = eval(compile(ast.Expression(last.value), f"cell {count}", "eval"), names)
    outputs: list[Output] = []
    if printed.getvalue():
        text = printed.getvalue().splitlines(keepends=True)
        outputs.append({"name": "stdout", "output_type": "stream", "text": text})
    if value is not None:
        data = {"text/plain": repr(value).splitlines(keepends=True)}
        if hasattr(value, "_repr_png_"):
            png = base64.b64encode(value._repr_png_()).decode()
            data = {"image/png": png, "text/plain": ["<picture>"]}  # type: ignore[dict-item]
        elif hasattr(value, "_repr_html_"):
            data["text/html"] = value._repr_html_().splitlines(keepends=True)
        outputs.append(
            {
                "data": data,
                "execution_count": count,
                "metadata": {},
                "output_type": "execute_result",
            }
        )
    return outputs


if __name__ == "__main__":
    main(sys.argv[1:])
