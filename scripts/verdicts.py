"""Write the tables of verdicts and papers into the pages: `python -m scripts.verdicts`.

Tables stand between `<!-- verdicts: paper -->` and `<!-- /verdicts -->` on a paper's page and on
the study's, and between `<!-- papers -->` and `<!-- /papers -->` in README.md.
"""

from __future__ import annotations

import re
from pathlib import Path

from fedpriv.papers.verdicts import count_verdicts, markdown_table

ROOT = Path(__file__).resolve().parents[1]
PAPERS = {
    "uldp_fl": (
        "Uldp-FL",
        "(Kato et al., PVLDB 2024)",
        "`fedavg` `uldp_naive` `uldp_group` `uldp_sgd` `uldp_avg` `uldp_avg_w`, "
        "`aggregation=private_weighting`",
    ),
    "hu": (
        "Concentrated Differentially Private and Utility Preserving FL",
        "(Hu, Guo, Gong)",
        "`cdp_fedavg` `dp_sgd`, `aggregation=masked`",
    ),
    "huang": (
        "A Federated Algorithm for Privacy-Preserving ERM",
        "(Huang)",
        "`dp_erm`, `aggregation=secagg`",
    ),
    "lowy": (
        "Private Non-Convex FL Without a Trusted Server",
        "(Lowy, Ghafelebashi, Razaviyayn, AISTATS 2023)",
        "`prox_sgd` `prox_svrg` `prox_pl_svrg` `spider` `minibatch_sgd` `local_sgd`, "
        "`aggregation=shuffle`",
    ),
    "secured_fl": (
        "SecureD-FL",
        "(Jeon, Ferdous, Rahman, Walid)",
        "`secured_fl` `local_only`, `aggregation=admm`",
    ),
}
"""By page: title, authors, and names of methods."""
STUDY = "study"
"""Figures that no paper has."""


def papers() -> str:
    """README's table."""
    lines = ["| paper | methods | figures here |", "| --- | --- | --- |"]
    for name, (title, authors, methods) in PAPERS.items():
        lines.append(
            f"| [{title}](docs/papers/{name}.md) {authors} | {methods} | {count_verdicts(name)} |"
        )
    return "\n".join(lines)


def pages() -> dict[Path, str]:
    """The correct text of every page with a table."""
    found = {
        ROOT / "README.md": _between((ROOT / "README.md").read_text(), "papers", "papers", papers())
    }
    places = {name: ROOT / "docs" / "papers" / f"{name}.md" for name in PAPERS}
    for name, path in (places | {STUDY: ROOT / "docs" / "study.md"}).items():
        found[path] = _between(
            path.read_text(), f"verdicts: {name}", "verdicts", markdown_table(name)
        )
    return found


def _between(text: str, opening: str, closing: str, content: str) -> str:
    pattern = re.compile(rf"(<!-- {opening} -->\n).*?(<!-- /{closing} -->)", re.DOTALL)
    if len(pattern.findall(text)) != 1:
        raise ValueError(f"a page needs one place <!-- {opening} -->")
    return pattern.sub(lambda match: f"{match[1]}{content}\n{match[2]}", text)


if __name__ == "__main__":
    for path, text in pages().items():
        path.write_text(text)
