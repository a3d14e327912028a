"""`fedpriv --help`, and where the configuration tree is. Imports nothing, so that help answers at
once."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

TEXT = """\
fedpriv: private federated learning with certified epsilons

fedpriv [run] [key=value ...]        train; metrics, epsilons and the model go to outputs/
fedpriv epsilon [key=value ...]      the epsilon table of the same settings, without training
fedpriv allocation [key=value ...]   who owns which records in which silo: a table and a picture
fedpriv table folder ...             finished runs by configuration: mean, deviation, tests
fedpriv figure folder ...            metric and epsilon against the round, from finished runs
fedpriv reproduce [paper/figure ...] a paper's figure: its experiments, then the picture;
                                     --profile quick or paper
fedpriv audit [--quick] [--one-run] [--canaries n] [--colluding n] [key=value ...]
                                     attacks on the same settings: lower bounds beside certificates

Config groups (group=name; --cfg job prints every key with its value):
{groups}

Keys typed most: rounds seed device resume randomness data.root allocator.n_users
  allocator.n_silos algo.clip algo.noise_multiplier algo.user_rate algo.weighting
  algo.local_epochs algo.local_lr algo.global_lr

Examples:
  fedpriv
  fedpriv algo=uldp_avg data=creditcard data.root=path/to/data algo.weighting=records
  fedpriv epsilon algo=uldp_avg algo.noise_multiplier=5 algo.user_rate=0.1 rounds=100
  fedpriv -m seed=0,1,2 algo=fedavg,uldp_avg,uldp_sgd data=digits
  fedpriv resume=outputs/breast_cancer/uldp_avg/<folder>
  fedpriv table outputs/sweeps/<folder> --out table.tex

-m runs every combination of comma-separated values, one after the other;
hydra/launcher=side_by_side runs them side by side; the same hydra.sweep.dir again runs what is
left; quiet=true prints nothing; --version prints the version;
--config-dir adds a folder of your own group files;
eval "$(fedpriv -sc install=bash)" turns on tab completion; --hydra-help lists Hydra's options.
"""


def conf_dir() -> Path:
    """The configuration tree: inside an installed wheel, or at the top of a checkout."""
    here = Path(__file__).resolve().parents[1]
    return here / "conf" if (here / "conf").is_dir() else here.parent / "conf"


def near(word: str, known: Iterable[str]) -> str:
    """A hint at the nearest of the known words, or nothing."""
    import difflib

    found = difflib.get_close_matches(word, list(known), n=1)
    return f"did you mean {found[0]}? " if found else ""


def help_text(own: Path | None = None) -> str:
    """The text with the groups and names that the configuration tree holds now, and a user's own
    folder of them."""
    groups: dict[str, list[str]] = {}
    for folder in (conf_dir(), *([own] if own else [])):
        for file in sorted(folder.rglob("*.yaml")):
            parts = file.relative_to(folder).with_suffix("").parts
            if len(parts) > 1:
                groups.setdefault(parts[0], []).append("/".join(parts[1:]))
    width = max(map(len, groups))
    return TEXT.format(
        groups="\n".join(f"  {name:<{width}}  {', '.join(names)}" for name, names in groups.items())
    )
