"""`fedpriv --help`. Imports little, so that help answers at once."""

from __future__ import annotations

from pathlib import Path

from fedpriv.settings.words import conf_dir

TEXT = """\
fedpriv: private federated learning, with a proven epsilon beside every claimed one

fedpriv [run] [key=value ...]        train; write metrics, epsilons and the model to outputs/
fedpriv epsilon [key=value ...]      the epsilon table of the same settings, without training;
                                     -m: one row a setting; --json, --out file.csv
fedpriv init folder                  a small project to start from: settings, a table, a README
fedpriv data [key=value ...]         how records are read, and what is private about it;
                                     --out writes the schema of a table, --allocation file.png
                                     who owns which records in which silo: a table and a picture
fedpriv analyse data.path=file.csv data.user=column bounds.age=0,110 target=1
                                     private counts, means, quantiles and histograms of a table
fedpriv evaluate run target=1        private accuracy, loss, calibration and AUC of a run's model
fedpriv table folder ...             results of finished runs: mean, deviation, tests
fedpriv compare algo=a,b epsilon=2   train methods at one certified epsilon, and compare them
fedpriv figure folder ...            plot metric and epsilon of finished runs against the round
fedpriv report folder                a page for a data protection officer; --sign, --verify
fedpriv reproduce [paper/figure ...] run a paper's experiments and draw the figure;
                                     --profile quick or paper
fedpriv replicate [entry ...]        decide a paper's claim by the rule of the ledger
fedpriv audit [--quick] [--one-run] [--canaries n] [--colluding n] [key=value ...]
                                     attack the settings: lower bounds on epsilon beside the
                                     certified ones; also analyse ... or evaluate run ...
fedpriv certify claim.yaml ... [--budget epsilon] [--json] [--html file]
                                     what a stated epsilon is worth: certified, attacked, verdict
fedpriv predict run new.csv          scores of a trained model; --out scores.csv, --onnx
fedpriv export run [--onnx]          rewrite the bundle that a run leaves: licence, intended use,
                                     threshold, a file for other programs
fedpriv ledger init|show|check|grant file
                                     what a data set has paid in all runs, and what is left
fedpriv keys new|add|rotate|revoke|show ...
                                     the parties' long-term keys, and the roster of public ones

Config groups (group=name; --cfg job prints every key with its value):
{groups}

Frequent keys: rounds seed device resume randomness data.root allocator.n_users
  allocator.n_silos algo.clip algo.noise_multiplier algo.user_rate algo.weighting
  algo.local_epochs algo.local_lr algo.global_lr accountant.target

Examples:
  fedpriv
  fedpriv algo=uldp_avg data=creditcard data.root=path/to/data algo.weighting=records
  fedpriv epsilon algo=uldp_avg algo.noise_multiplier=5 algo.user_rate=0.1 rounds=100
  fedpriv -m seed=0,1,2 algo=fedavg,uldp_avg,uldp_sgd data=digits
  fedpriv resume=outputs/breast_cancer/uldp_avg/<folder>
  fedpriv table outputs/sweeps/<folder> --out table.tex

Options:
  -m                                  run every combination of comma-separated values
  hydra/launcher=side_by_side         run them side by side in one process
  hydra.sweep.dir=folder              continue the sweep in this folder
  quiet=true                          print nothing
  --trust-code                        resume= imports the classes that the folder names
  --config-dir folder                 add your own configuration files
  --version                           print the version
  --hydra-help                        list Hydra's options
  eval "$(fedpriv -sc install=bash)"  turn on tab completion
"""


def help_text(own: Path | None = None) -> str:
    """The help text, with the groups and names of the configuration tree.

    own: the user's own configuration folder.
    """
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
