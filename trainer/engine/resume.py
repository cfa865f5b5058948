"""Resume: the checkpoint that a start goes on from: of this run or another, of its stage or that before."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, replace

import torch
from torch import Tensor
from torch.distributed.checkpoint.state_dict import get_model_state_dict

from vastrun.contract import layout
from vastrun.contract.config import ModelConfig, TrainConfig
from vastrun.contract.errors import ConfigError
from vastrun.contract.records import read_as
from vastrun.trainer.checkpoints import TrainerState
from vastrun.trainer.checkpoints.contents import EMA, MODEL, STATE
from vastrun.trainer.data.trajectories import Windows
from vastrun.trainer.engine.determinism import differences, name_of_device
from vastrun.trainer.engine.ema import Ema
from vastrun.trainer.engine.session import Session
from vastrun.trainer.models.operator import Operator
from vastrun.trainer.stages import STAGES, Stage

_MEASURED_STEPS = 8
"""Batches of a task that a stage sees before it begins."""

_NEEDED = {"data", "deterministic", "freeze", "model", "stage"}
"""What is read of the configuration in a checkpoint."""


def resumed(session: Session) -> Session:
    """Return the session after its newest intact checkpoint, of this run or else of the one it continues.

    A checkpoint of the stage before gives what does not learn in this one, which then begins. Raises
    ConfigError when there is none that fits.
    """
    ranks, config = session.ranks, session.config
    found = session.checkpoints.newest(else_of=ranks.rank.box / layout.RESUME)
    if ranks.rank.is_first:
        for damage in found.faults if found else ():
            print(f"checkpoint: {damage}", flush=True)
    fault = _fault(config, found.path.name, found.state) if found else _missing(config)
    if fault:
        raise ConfigError(fault, reported_elsewhere=not ranks.rank.is_first)
    if found is None:
        return session
    state = found.state
    if state.config["stage"] != config.stage:
        session.checkpoints.load(found, _inherited(session.operator, STAGES[config.stage]))
        if ranks.rank.is_first:
            print(
                f"stage {config.stage} begins upon {found.path.name} of {state.config['stage']}", flush=True
            )
        return _begun(session)
    if config.deterministic and ranks.rank.is_first:
        _warn_of_other_bits(session, found.path.name, state)
    session.checkpoints.load(found, session.tensors())
    if state.scaler:  # empty: the precision was another one
        session.scaler.load_state_dict(state.scaler)
    return replace(session, start=state.step, loss=state.loss, wandb_id=_wandb_id(session, state))


def _warn_of_other_bits(session: Session, name: str, state: TrainerState) -> None:
    """Say why the training does not repeat an uninterrupted one, where that is so."""
    changes = differences(state.made_by, session.plan, name_of_device(session.ranks.device))
    if not state.config["deterministic"]:
        changes.insert(0, "it was saved without train.deterministic")
    if changes:
        print(
            f"warning: deterministic: the training continues from {name}, but does not repeat an "
            f"uninterrupted run bit for bit: {'; '.join(changes)}",
            flush=True,
        )


def _wandb_id(session: Session, state: TrainerState) -> str:
    """Return the W&B run of the training that is continued, if that is one of the user's own before this.

    A checkpoint comes from a stranger's machine: it may name any run that the user's key can write to.
    """
    named = state.made_by.get("wandb", session.wandb_id)
    if named in (session.job.run_id, *session.job.continues):
        return str(named)
    if session.ranks.rank.is_first and session.config.wandb.mode != "off":
        print("W&B: a new run; this job does not continue the one that the checkpoint names", flush=True)
    return session.wandb_id


def _fault(config: TrainConfig, name: str, state: TrainerState) -> str | None:
    """Say why this job cannot continue from that checkpoint, which comes from a stranger's machine."""
    for key in sorted(_NEEDED - state.config.keys()):
        return f"{STATE} of {name} has no config.{key}"
    try:
        return _difference(config, name, state)
    except (KeyError, TypeError, ValueError) as error:
        return f"{STATE} of {name} is not this trainer's: {error}"


def _difference(config: TrainConfig, name: str, state: TrainerState) -> str | None:
    stage, former = state.config["stage"], STAGES[config.stage].former
    if stage not in (config.stage, former):
        starts = f"starts from one of {former}" if former else "starts from nothing"
        return f"train.stage: {config.stage} {starts}, but {name} is a checkpoint of {stage}"
    if stage == config.stage and state.config["freeze"] not in ("off", config.freeze):
        return f"train.freeze: the codec was frozen in {name}, which has no optimiser state for it"
    their_tasks, tasks = [each["task"] for each in state.config["data"]], [each.task for each in config.data]
    if len(their_tasks) != len(tasks) or any(map(_is_another_task, their_tasks, tasks)):
        there, here = (", ".join(names) for names in (their_tasks, tasks))
        return f"train.data: the tasks are {here}, but {name} is a checkpoint of {there}"
    theirs, ours = asdict(read_as(ModelConfig, state.config["model"])), asdict(config.model)
    others = [
        f"{key} is {theirs[key]} there, and {ours[key]} here" for key in ours if theirs[key] != ours[key]
    ]
    return f"{name} is of another model: {'; '.join(others)}" if others else None


def _is_another_task(theirs: str, ours: str) -> bool:
    """Compare two built-in tasks; one of the user's own, `module:function`, may have got another name."""
    return theirs != ours and ":" not in theirs + ours


def _missing(config: TrainConfig) -> str | None:
    former = STAGES[config.stage].former
    if former:
        needs = f"train.stage: {config.stage} starts from a checkpoint of {former}"
    elif config.freeze != "off":
        needs = "train.freeze: what is frozen comes from a checkpoint"
    else:
        return None
    return f"{needs}, and there is none: vastrun launch JOB.yaml --from RUN"


def _inherited(operator: Operator, stage: Stage) -> dict[str, Tensor]:
    """Return what does not learn, by its names in the checkpoint of the stage before.

    Where that kept an average of the weights, the average.
    """
    parameters = {name for name, _ in operator.named_parameters()}
    wanted = {}
    for here, tensor in get_model_state_dict(operator).items():
        part = next((part for part in stage.inherits if here.startswith(part)), None)
        if part is None:
            continue
        there = stage.inherits[part] + here.removeprefix(part)
        if here in parameters:
            # The average goes into the operator itself; the weights behind it are read into memory that is
            # dropped.
            wanted[f"{EMA}{there}"] = tensor
            tensor = torch.empty_like(tensor)
        wanted[f"{MODEL}{there}"] = tensor
    return wanted


@torch.no_grad()
def _begun(session: Session) -> Session:
    """Show the stage what it builds upon, and its first batches."""
    tasks = range(len(session.tasks))
    with session.autocast():
        session.objective.begin([_first_batches(session, task) for task in tasks], session.ranks)
    decay = session.config.ema
    return replace(session, ema=Ema(session.operator, decay) if decay else None)


def _first_batches(session: Session, number: int) -> Iterable[Windows]:
    """Read this rank's share of them. Not by the loader, which reads ahead of the training."""
    task, order = session.tasks[number], session.task_schedule.sample_plans[number]
    for step in range(_MEASURED_STEPS):
        for micro_batch in range(order.accumulation):
            windows = task.batch(step, order.micro_batch_of(step, micro_batch))
            yield replace(windows.each(lambda tensor: tensor.to(session.ranks.device)), task=number)
