"""A hook of mkdocs: each notebook of docs/notebooks is a page, with the outputs that it keeps."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add a page for each notebook, which itself stays to be downloaded."""
    for file in [file for file in files if file.src_uri.endswith(".ipynb")]:
        text = markdown(json.loads(Path(str(file.abs_src_path)).read_text()))
        name = Path(file.src_uri).name
        text += f"\n[The notebook]({name})\n"
        files.append(File.generated(config, file.src_uri.replace(".ipynb", ".md"), content=text))
    return files


def on_page_markdown(text: str, page: Any, **_: Any) -> str:
    """Lead from the other pages to the notebooks' pages."""
    own = page.file.src_uri.startswith("notebooks/")
    return text if own else re.sub(r"(\]\([^()]*)\.ipynb\)", r"\1.md)", text)


def markdown(notebook: dict[str, Any]) -> str:
    """The cells of a notebook in Markdown."""
    parts = []
    for cell in notebook["cells"]:
        source = "".join(cell["source"])
        parts.append(source if cell["cell_type"] == "markdown" else f"```python\n{source}\n```")
        for output in cell.get("outputs", []):
            parts.append(_shown(output.get("data", {"text/plain": output.get("text", "")})))
    return "\n\n".join(parts) + "\n"


def _shown(data: dict[str, Any]) -> str:
    """What an output shows: a picture, else a table, else text."""
    if picture := data.get("image/png"):
        encoded = "".join(picture).replace("\n", "")
        return f'<img alt="output" src="data:image/png;base64,{encoded}">'
    if table := data.get("text/html"):
        lines = "".join(table).splitlines()
        return "\n".join(line for line in lines if line.strip())
    return f"```text\n{''.join(data['text/plain'])}\n```"
