"""What a run releases: whether a certificate covers it, the labels of what it leaves, and the
bundle of a finished run: what using its model takes, with a label for each number that was read off
records."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np

import fedpriv
from fedpriv.accountants.events import ENFORCED, RELEASED_MODEL, leaves
from fedpriv.accountants.ledger import EpsilonRow, Ledger
from fedpriv.algorithms.base import Algorithm
from fedpriv.bundles.bundle import CLASSES, LOGIT, Bundle
from fedpriv.certificates.derive import ROUNDED_ALIKE
from fedpriv.data.table.encoding import OF_OWNERS, Encoding
from fedpriv.errors import require
from fedpriv.rounds.query import Query, events_of
from fedpriv.runs.labels import DIAGNOSTIC, RELEASED, TRAINING, Labels, run_labels
from fedpriv.runs.tables import METRICS
from fedpriv.runtime import PreparedRun
from fedpriv.settings.experiment import Experiment
from fedpriv.util.installed import installed

if TYPE_CHECKING:
    from fedpriv.data.base import DataSet

READ_OFF = f"{DIAGNOSTIC} of training and test records, read off without noise"
BY_WORD = f"{RELEASED}: public by the word of the table's owner, though a draft read it off"
NOT_STATED = "Not stated. `fedpriv export RUN --intended-use TEXT` writes it here."


def beyond_processors(devices: Iterable[str]) -> bool:
    """Whether rounds ran elsewhere than on a processor, or may have."""
    return any(device != "cpu" for device in devices)


def require_private(experiment: Experiment, prepared: PreparedRun) -> None:
    """Raise ConfigError where `private=all` cannot be kept, although the settings allow it."""
    ledger = Ledger(experiment.accountant)
    ledger.record(events_of(prepared.queries(1)))
    device = prepared.facts.device
    private = is_private(experiment, prepared, ledger.rows(1), [device])
    allowed = f"null: there is no enforced certificate of what is released, on {device}"
    require(private, "private", experiment.options.private, allowed)


def is_private(
    experiment: Experiment, prepared: PreparedRun, rows: list[EpsilonRow], devices: list[str]
) -> bool:
    """Whether the released model has a certificate: system randomness, bounded contributions,
    a finite epsilon that is enforced, no invented users if it speaks of
    users, and nothing in the model that was read off the records without noise. On a GPU no epsilon
    that takes equal rounding for granted: there it was seen to fail.

    rows: the epsilon rows of the last round.
    devices: of all processes of the run.
    """
    queries = prepared.plan.query_parameters.values()
    clips = all(parameters.mechanism.clips for parameters in queries)
    released = [row for row in rows if row.observer == RELEASED_MODEL]
    on_gpu = beyond_processors(devices)
    finite = any(
        math.isfinite(row.certified)
        and row.status == ENFORCED
        and not (on_gpu and ROUNDED_ALIKE in row.assumptions)
        for row in released
    )
    real = not experiment.allocator.invents_users or all(row.unit != "user" for row in released)
    noised = not experiment.data.read_without_noise
    return experiment.options.system and clips and finite and real and noised


def labels_of(experiment: Experiment, prepared: PreparedRun) -> Labels:
    """The label of everything that a run writes."""
    # Later rounds of somebody else's method may lack what the first one has.
    last = 1 if installed(experiment.algo) else max(1, experiment.options.rounds)
    rounds = [prepared.queries(number) for number in range(1, last + 1)]
    algo = experiment.algo
    own = type(algo).evaluated is not Algorithm.evaluated and not algo.keeps_released
    labels = run_labels(
        main=prepared.evaluation.task.metric,
        disjoint=experiment.data.disjoint_test and prepared.evaluation.test.user is None,
        certified=_certified(rounds),
        kept=own and any(query.asked.stateful for queries in rounds for query in queries),
        private=experiment.data.private_test,
    )
    parts = _bundle_labels(experiment, prepared.facts.encoding, labels)
    if not any(label.startswith(DIAGNOSTIC) for label in parts.values()):
        labels |= dict.fromkeys(("bundle/bundle.json", "bundle/README.md"), RELEASED)
    return labels


def _bundle_labels(
    experiment: Experiment, encoding: Encoding | None, labels: Labels
) -> dict[str, str]:
    """The label of each part of a bundle, from those of the run."""
    columns = labels[METRICS]
    assert isinstance(columns, dict)
    exact = experiment.options.evaluation == "exact"
    return {
        "weights": str(labels["model.safetensors"]),
        "network, certificate": RELEASED,
        **({"metrics": columns[experiment.data.task.metric]} if exact else {}),
        **_of_the_encoding(encoding),
    }


def with_labels(config_yaml: str, labels: Labels) -> str:
    """The configuration as a tracker shows it: with the label of each metric."""
    return config_yaml.rstrip("\n") + f"\nlabels: {json.dumps(labels[METRICS])}\n"


def _certified(rounds: Iterable[tuple[Query, ...]]) -> bool:
    """Whether the model that these rounds release has a certificate for some unit. A round without
    queries releases nothing new."""
    units: dict[tuple[str, str], bool] = {}
    for event in chain.from_iterable(map(events_of, rounds)):
        if event.observer == RELEASED_MODEL:
            unit = event.unit, event.adjacency
            held = leaves([(event.certified, 1)]) is not None
            units[unit] = held and units.get(unit, True)
    return any(units.values())


def bundle_of(
    experiment: Experiment,
    prepared: PreparedRun,
    parameters: Mapping[str, np.ndarray],
    *,
    rows: list[dict[str, str]],
    metrics: Mapping[str, str],
    valid: bool,
    not_covered: list[str],
    labels: Labels,
) -> Bundle:
    """The bundle of a finished run.

    parameters: of the released model, by name in their order.
    rows: of epsilon.csv after the last round.
    metrics: the last row of metrics.csv.
    valid: whether the released model has a certificate.
    not_covered: what no epsilon covers.
    labels: of the run.
    """
    data, encoding = experiment.data, prepared.facts.encoding
    task, main = data.task, data.task.metric
    network, tensors, unsaved = _network(prepared, data, parameters)
    columns = labels[METRICS]
    assert isinstance(columns, dict)
    about = columns[main]
    if experiment.algo.keeps_released:
        about += ", of the models that silos keep"
    return Bundle(
        name=f"{experiment.algo.label} on {type(data).__name__}",
        version=fedpriv.__version__,
        method=experiment.algo.label,
        task=task.meaning,
        outputs=data.outputs,
        classes=_classes(data, encoding),
        threshold=task.threshold,
        prepared=_prepared(data) if encoding is None else "",
        licence="unknown",
        intended_use=NOT_STATED,
        metrics={main: f"{metrics[main]} ({about})"} if metrics.get(main) else {},
        valid=valid,
        privacy={
            "randomness": experiment.options.randomness,
            "delta": str(experiment.accountant.delta),
        },
        not_covered=not_covered,
        labels=_bundle_labels(experiment, encoding, labels),
        unsaved=unsaved,
        table=None if encoding is None else encoding.tree(),
        network=network,
        tensors=tensors,
        certificate=rows,
    )


def _network(
    prepared: PreparedRun, data: DataSet, parameters: Mapping[str, np.ndarray]
) -> tuple[dict[str, Any] | None, Mapping[str, np.ndarray], str]:
    """The network as plain values, its tensors, and why there is none."""
    import torch

    from fedpriv.bundles.network import UnsavedError, save_network
    from fedpriv.training.graph import Graph, captured

    if not any(query.size for query in prepared.queries(1)):
        return None, parameters, "each silo keeps its own model, and the released one is untrained"
    dtype = torch.int64 if data.text else torch.float32
    graph = captured(prepared.model, data.shape, dtype)
    if not isinstance(graph, Graph):
        return None, parameters, graph.reason
    try:
        return *save_network(graph, parameters, data.shape, dtype), ""
    except UnsavedError as error:
        return None, parameters, str(error)


def _classes(data: DataSet, encoding: Encoding | None) -> list[str]:
    meaning = data.task.meaning
    if meaning not in (CLASSES, LOGIT):
        return []
    if encoding is not None and encoding.schema.label.classes:
        return list(encoding.schema.label.classes)
    return [str(place) for place in range(2 if meaning == LOGIT else data.outputs)]


def _prepared(data: DataSet) -> str:
    """What records are before the network reads them: the first words about the data set."""
    about = (type(data).__doc__ or "").split("\n\n")[0]
    return f"Records as fedpriv's {type(data).__name__} has them: {' '.join(about.split())}"


def _of_the_encoding(encoding: Encoding | None) -> dict[str, str]:
    """The labels of what a table's encoding says."""
    if encoding is None:
        return {}
    schema = encoding.schema
    label = BY_WORD if schema.public else READ_OFF
    read_off = [text for text in schema.read_off if text not in OF_OWNERS]
    return {
        "columns, categories, classes and ranges": RELEASED if schema.public else READ_OFF,
        **dict.fromkeys(read_off, label),
        **{f"scale of {name}": TRAINING for name in encoding.scales},
    }
