"""Prepare a run from a validated experiment."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from fedpriv.crypto.key_files import KeyFiles, read_roster
from fedpriv.crypto.roster import Identity, Roster, new_identities
from fedpriv.engines.sites import AtSite
from fedpriv.errors import ConfigError, FedprivError, require
from fedpriv.ledgers.counted_lines import CountedFile
from fedpriv.models import Network
from fedpriv.parties.party import PartySpec, silo_name
from fedpriv.rounds.mixing import with_estimates
from fedpriv.rounds.plan import Federation, Plan
from fedpriv.rounds.state import State
from fedpriv.runtime.evaluation import Evaluation, OnTraining
from fedpriv.runtime.helper import HelperSpec
from fedpriv.runtime.identity import RunIdentity
from fedpriv.runtime.own_records import NO_TESTS, records_of
from fedpriv.runtime.prepared_run import PreparedRun, RunFacts
from fedpriv.runtime.run_settings import RunSettings
from fedpriv.runtime.silo import SiloSpec
from fedpriv.runtime.standing import Standing, require_fits
from fedpriv.training.description import AS_IT_IS

if TYPE_CHECKING:
    from torch import nn

    from fedpriv.data.silo import SiloData
    from fedpriv.engines.study import Study
    from fedpriv.settings.experiment import Experiment
    from fedpriv.training.trainers.base import LocalProblem


def resolve_device(device: str) -> str:
    """The device to use; `auto` is the first CUDA device if there is one, else the CPU. Raises
    ConfigError for a device that this machine lacks."""
    import torch

    if device == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    if device.startswith("cuda"):
        index = int(device.partition(":")[2] or 0)
        if not torch.cuda.is_available() or index >= torch.cuda.device_count():
            raise ConfigError(
                "device", device, "this machine has no such CUDA device; allowed: auto, cpu"
            )
    return device


def prepare(
    exp: Experiment,
    checkpoint: Mapping[str, np.ndarray] | None = None,
    *,
    revise: Callable[[Plan], Plan] = lambda plan: plan,
    roster: Roster | None = None,
    charged: bool = False,
) -> PreparedRun:
    """Build the model, load and allocate the data, create the parties, and run the aggregation's
    set-up.

    checkpoint: arrays of `PreparedRun.arrays` from an earlier round of the same run; None: start a
        new run.
    revise: changes the plan before the parties are created. Checks use it, for example to remove
        the noise.
    roster: that of an earlier process of the same run; its keys are revoked. Without effect where
        the parties' keys come from files (`engine.roster`).
    charged: whether the ledger of the settings has been charged.

    The result is a context manager that ends the parties. Raises FedprivError for errors that the
    user can fix. Nothing is written.
    """
    ledger = exp.options.ledger
    allowed = "null: only runs charge a ledger; audits and checks read records without noise"
    require(charged or ledger is None, "ledger", ledger, allowed)
    device = resolve_device(exp.options.device)
    exp.engine.check(device)
    known, identities = _identities(exp, roster)
    network, params = initial_network(exp, device)
    device, trainer = _trained_by(exp, network.module, params, device)
    records = records_of(exp)
    plan = planned(exp, records.federation, network.module)
    identity = RunIdentity.of(exp, records, plan)
    settings = settings_of(exp, revise(plan), exp.engine.published)
    state, standing = _continued(exp, settings, params, checkpoint)
    told = exp.options.evaluation == "exact"
    evaluation = Evaluation(
        network.module,
        exp.data.task,
        device,
        records.test if told else NO_TESTS,
        records.held_out if told else None,
        records.silos,
        OnTraining(exp.algo, exp.options.optimum) if exp.options.evaluate_training else None,
        records.parts if told else {},
    )
    specs = _specs(exp, settings, identities, records.silos, network, device=device)
    run = PreparedRun(
        settings,
        exp.engine.open(specs, standing.silo_states),
        state,
        evaluation,
        RunFacts(known, device, identity, trainer, records.notes, records.encoding),
        standing,
    )
    with contextlib.ExitStack() as opened:
        opened.push(run)
        run.first_set_up()
        opened.pop_all()
    return run


def identify(exp: Experiment) -> RunIdentity:
    """The identity that `prepare` would give the run now. Creates no parties."""
    records = records_of(exp)
    plan = planned(exp, records.federation, initial_network(exp, "cpu")[0].module)
    return RunIdentity.of(exp, records, plan)


def settings_of(exp: Experiment, plan: Plan, study: Study | None) -> RunSettings:
    """A party's copy of the run's settings."""
    return RunSettings(
        exp.algo,
        exp.aggregation,
        plan,
        exp.options.rounds,
        exp.accountant,
        b"" if study is None else study.digest,
    )


def _continued(
    exp: Experiment,
    settings: RunSettings,
    params: np.ndarray,
    checkpoint: Mapping[str, np.ndarray] | None,
) -> tuple[State, Standing]:
    """The state and the standing that a run continues from. Raises FedprivError for a checkpoint
    that this experiment cannot have written."""
    state = exp.algo.first_state(params, settings.plan)
    if checkpoint is None:
        return state, Standing()
    require_fits(checkpoint, state.arrays())
    standing = Standing.restored(checkpoint, settings.silos)
    state = State.from_arrays(checkpoint)
    # With system randomness silos have forgotten the sums that later messages would repeat.
    return with_estimates(state, settings.plan) if exp.options.system else state, standing


def _identities(
    exp: Experiment, before: Roster | None
) -> tuple[Roster, Mapping[str, Identity | KeyFiles]]:
    """The coordinator's roster, and the keys of all parties by name, or where each finds its own.
    Raises FedprivError for a roster that lacks a party."""
    names = (*map(silo_name, range(exp.federation.n_silos)), *exp.aggregation.helpers)
    file, folder = exp.engine.roster, exp.engine.keys
    if file is None or folder is None:
        made = new_identities(names, before)
        return next(iter(made.values())).roster, made
    roster = read_roster(file)
    for name in names:
        if name not in roster.keys:
            raise FedprivError(f"{file}: {name} has no key that is not revoked")
    return roster, {name: KeyFiles(name, folder, file) for name in names}


def _trained_by(
    exp: Experiment, model: nn.Module, params: np.ndarray, device: str
) -> tuple[str, str]:
    """Where users are trained and by what, with the reason, as a line.

    Raises ConfigError if the configured trainer cannot train the network on this machine. With
    trainer=auto the line says why nothing can: a method may train no users.
    """
    from fedpriv.training.select import select_trainer

    if not exp.algo.releases_model:
        return "cpu", "none: nothing trains"
    measured = ""
    if exp.options.device == "auto" and device != "cpu":
        device, measured = _faster_device(exp, model, params, device)
    isolated = exp.options.system and exp.algo.contributors.any_number
    try:
        chosen = select_trainer(_problem(exp, model, params, device), alone=isolated)
        trainer = f"{chosen.name}: {chosen.reason}"
    except ConfigError as error:
        if exp.options.execution.trainer != "auto":
            raise
        trainer = f"none: {error}"
    exp.algo.check_network(model, exp.data)
    return device, trainer + measured


def planned(exp: Experiment, federation: Federation, model: nn.Module) -> Plan:
    """The plan. Its certificates say so where the network is not captured."""
    import torch

    from fedpriv.training.graph import Graph, captured

    plan, data = exp.planner.plan(federation), exp.data
    if isinstance(captured(model, data.shape, torch.int64 if data.text else torch.float32), Graph):
        return plan
    trust = plan.threat_model
    return replace(plan, threat_model=replace(trust, assumptions=(*trust.assumptions, AS_IT_IS)))


def _faster_device(
    exp: Experiment, model: nn.Module, params: np.ndarray, gpu: str
) -> tuple[str, str]:
    """The device that trains users faster, and why, as the end of a line."""
    from fedpriv.training.faster_device import PROCESSOR, faster_device

    trainer = exp.options.execution.trainer
    if trainer != "auto":
        return (PROCESSOR if trainer == "compiled" else gpu), ""
    try:
        choice = faster_device(_problem(exp, model, params, PROCESSOR), gpu)
    except ConfigError:  # a method may train no users
        return gpu, ""
    return choice.name, f"; {choice.reason}" if choice.reason else ""


def _problem(exp: Experiment, model: nn.Module, params: np.ndarray, device: str) -> LocalProblem:
    import torch

    from fedpriv.training.select import example_problem

    return example_problem(
        exp.options.execution,
        model.to(device),
        torch.from_numpy(params).to(device, torch.float32),
        exp.data.shape,
        exp.data.task,
        exp.optimizer,
        torch.int64 if exp.data.text else torch.float32,
    )


def _specs(
    exp: Experiment,
    settings: RunSettings,
    identities: Mapping[str, Identity | KeyFiles],
    silo_data: list[SiloData],
    network: Network,
    *,
    device: str,
) -> dict[str, PartySpec]:
    """The descriptions of all parties, by name. A silo's description contains its own records and
    its own key only."""
    specs: dict[str, PartySpec] = {}
    if exp.engine.published is not None:
        specs |= {name: AtSite(settings.digest) for name in settings.silos}
    for index, data in enumerate(silo_data):
        name = settings.silos[index]
        specs[name] = SiloSpec(
            index=index,
            data=data,
            network=network,
            task=exp.data.task,
            settings=settings,
            identity=identities[name],
            device=device,
            execution=exp.options.execution,
            journal=_journal(exp.engine.journals, name),
        )
    for place, name in enumerate(exp.aggregation.helpers):
        specs[name] = HelperSpec(name, settings, identities[name], announces=place == 0)
    return specs


def _journal(folder: str | None, silo: str) -> CountedFile | None:
    return None if folder is None else CountedFile(os.path.join(folder, f"{silo}.txt"))


_latest: list[Network] = []
"""The network of the latest run on the CPU. Runs of one experiment share it, as the parties of one
run do, so that its graph and its trainer are found once."""


def _shared(network: Network) -> Network:
    """The network of the latest run if it is the same one; else this one, which is kept."""
    for latest in _latest:
        if latest.model is network.model and latest == network:
            return latest
    _latest[:] = [network]
    return network


def initial_network(exp: Experiment, device: str) -> tuple[Network, np.ndarray]:
    """The network and its seeded initial weights.

    Raises ConfigError if the number of parameters differs from `size()`: noise and rounding depend
    on it.
    """
    from fedpriv.training.vectors import flatten

    seed = exp.streams.torch_seed("initial weights")
    network = Network(exp.model, exp.data.shape, exp.data.outputs, seed)
    if device == "cpu":
        network = _shared(network)
    params = flatten(network.module).double().numpy()
    stated = exp.federation.n_parameters
    name = type(exp.model).__name__
    if len(params) != stated:
        raise ConfigError(
            "model", name, f"size() says {stated} parameters, and build() creates {len(params)}"
        )
    return network, params
