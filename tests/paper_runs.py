"""Folders of finished runs without training, for the papers' figures."""

import yaml
from fake_runs import finished_status

from fedpriv.runs.folder import RunFolder


def paper_run(path, label, values, *, loss=None, epsilons=(40.0, 10.0), config=None, **algo):
    """A run with rounds 0, 1, ... and accuracies `values`.

    loss: training loss; None is 1 minus the accuracy. epsilons: certified and claimed, of the
    server. config: further sections. algo: keys of its algorithm.
    """
    folder = RunFolder(path)
    folder.begin(yaml.safe_dump({"seed": 0, "algo": algo} | (config or {}))).close()
    rows = []
    for number, value in enumerate(values):
        train = 1 - value if loss is None else loss
        measured = {"error": 1 - value, "train_loss": train, "gradient_norm": 2 - value}
        measured |= {"mapping_norm": 2 * train, "heterogeneity": 3 * train}
        rows.append({"round": number, "accuracy": value, **measured})
    folder.tables.append("metrics.csv", rows)
    about = {"round": len(values) - 1, "observer": "server", "adjacency": "replace"}
    about |= {"unit": "record", "method": "pld"}
    folder.tables.append("epsilon.csv", [about | dict(zip(("certified", "claimed"), epsilons))])
    folder.status(**finished_status(label, delta=1e-4))
