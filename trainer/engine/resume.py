"""Resume: loads the checkpoint that a start continues from, of this run or of the run before it."""

import os
from collections.abc import Iterable
from dataclasses import asdict, replace

import torch
from torch import Tensor
from torch.distributed.checkpoint.state_dict import get_model_state_dict

from vastrun.contract import layout
from vastrun.contract.records import read_as
from vastrun.trainer.checkpoints import TrainerState
from vastrun.trainer.checkpoints.contents import EMA, MODEL, STATE
from vastrun.trainer.checkpoints.reader import FoundCheckpoint
from vastrun.trainer.data.trajectories import Windows
from vastrun.trainer.engine.determinism import changes_since, device_name
from vastrun.trainer.engine.ema import Ema
from vastrun.trainer.engine.session import Session
from vastrun.trainer.errors import ConfigError
from vastrun.trainer.job.config import ModelConfig, TrainConfig, wandb_mode
from vastrun.trainer.job.stage_config import FORMER
from vastrun.trainer.models.operator import Operator
from vastrun.trainer.stages import STAGES, Stage

_REQUIRED_KEYS = {"data", "deterministic", "freeze", "model", "stage"}
"""Keys of a checkpoint's configuration that are read here."""


def resume_session(session: Session, found: FoundCheckpoint | None = None) -> Session:
    """Return the session after its newest intact checkpoint, of this run or of the run that it continues.

    `found`: that checkpoint, where it is known. From a checkpoint of the former stage only the frozen parts
    are loaded, and this stage starts at step 0. Raises ConfigError when a needed checkpoint is missing, or
    does not fit the job.
    """
    ranks, config = session.ranks, session.config
    found = found or session.checkpoints.newest(else_of=ranks.rank.box / layout.RESUME)
    if ranks.rank.is_first:
        for damage in found.faults if found else ():
            print(f"checkpoint: {damage}", flush=True)
    error = _mismatch(config, found.path.name, found.state) if found else _missing_checkpoint(config)
    if error:
        raise ConfigError(error, reported_elsewhere=not ranks.rank.is_first)
    if found is None:
        return session
    state = found.state
    if state.config["stage"] != config.stage:
        session.checkpoints.load(found, _inherited_tensors(session.operator, STAGES[config.stage]))
        if ranks.rank.is_first:
            print(
                f"stage {config.stage} initialized from {found.path.name} of {state.config['stage']}",
                flush=True,
            )
        if session.stage.span.number > 0:  # the same run goes on
            session = replace(session, wandb_id=_wandb_id(session, state))
        return _start_stage(session)
    if config.deterministic and ranks.rank.is_first:
        _warn_if_not_bitwise(session, found.path.name, state)
    session.checkpoints.load(found, session.tensors())
    if state.scaler:  # empty when the precision was not fp16
        session.scaler.load_state_dict(state.scaler)
    start = state.step - state.first_step
    return replace(session, start=start, loss=state.loss, wandb_id=_wandb_id(session, state))


def _warn_if_not_bitwise(session: Session, name: str, state: TrainerState) -> None:
    """Print a warning when the training will not repeat an uninterrupted one bit for bit."""
    changes = changes_since(state.made_by, session.plan, device_name(session.ranks.device))
    if not state.config["deterministic"]:
        changes.insert(0, "it was saved without train.deterministic")
    if changes:
        print(
            f"warning: deterministic: the training continues from {name}, but does not repeat an "
            f"uninterrupted run bit for bit: {'; '.join(changes)}",
            flush=True,
        )


def _wandb_id(session: Session, state: TrainerState) -> str:
    """Return the W&B run that the checkpoint names, if it is this job's own or one that it continues.

    A checkpoint comes from a stranger's machine: it could name any run that the user's key can write to.
    """
    named = state.made_by.get("wandb", session.wandb_id)
    if named in (session.job.run_id, *session.job.continues):
        return str(named)
    if session.ranks.rank.is_first and wandb_mode(session.config.wandb.mode, os.environ) != "off":
        print("W&B: new run; the checkpoint names a run that this job does not continue", flush=True)
    return session.wandb_id


def _mismatch(config: TrainConfig, name: str, state: TrainerState) -> str | None:
    """Return why this job cannot continue from the checkpoint, which is untrusted; None: it can."""
    for key in sorted(_REQUIRED_KEYS - state.config.keys()):
        return f"{STATE} of {name} has no config.{key}"
    try:
        return _difference(config, name, state)
    except (KeyError, TypeError, ValueError) as error:
        return f"{STATE} of {name} was not written by this trainer: {error}"


def _difference(config: TrainConfig, name: str, state: TrainerState) -> str | None:
    stage, former = state.config["stage"], FORMER[config.stage]
    if not 0 <= state.first_step <= state.step:
        return f"{STATE} of {name} says that its stage began after step {state.first_step} of {state.step}"
    if stage not in (config.stage, former):
        starts = f"starts from one of {former}" if former else "starts from nothing"
        return f"train.stage: {config.stage} {starts}, but {name} is a checkpoint of {stage}"
    if stage == config.stage and state.config["freeze"] not in ("off", config.freeze):
        return f"train.freeze: the codec was frozen in {name}, which has no optimiser state for it"
    their_tasks, tasks = [each["task"] for each in state.config["data"]], [each.task for each in config.data]
    # A user's task, `module:function`, may have been renamed.
    pairs = zip(their_tasks, tasks, strict=False)
    if len(their_tasks) != len(tasks) or any(a != b and ":" not in a + b for a, b in pairs):
        there, here = (", ".join(names) for names in (their_tasks, tasks))
        return f"train.data: the tasks are {here}, but {name} is a checkpoint of {there}"
    saved, own = asdict(read_as(ModelConfig, state.config["model"])), asdict(config.model)
    if ":" in saved["name"] and config.model.is_own:
        saved["name"] = own["name"]  # the user's module may have been renamed; other weights do not fit
    changes = [f"{key} is {saved[key]} there, and {own[key]} here" for key in own if saved[key] != own[key]]
    return f"{name} is a checkpoint of another model: {'; '.join(changes)}" if changes else None


def _missing_checkpoint(config: TrainConfig) -> str | None:
    former = FORMER[config.stage]
    if former:
        needs = f"train.stage: {config.stage} starts from a checkpoint of {former}"
    elif config.freeze != "off":
        needs = "train.freeze: what is frozen comes from a checkpoint"
    else:
        return None
    return f"{needs}, and there is none: vastrun launch JOB.yaml --from RUN"


def _inherited_tensors(operator: Operator, stage: Stage) -> dict[str, Tensor]:
    """Return the frozen tensors by their names in the checkpoint of the former stage.

    Where that stage kept an average of the weights, the average is loaded.
    """
    parameters = {name for name, _ in operator.named_parameters()}
    tensors = {}
    for here, tensor in get_model_state_dict(operator).items():
        part = next((part for part in stage.inherits if here.startswith(part)), None)
        if part is None:
            continue
        there = stage.inherits[part] + here.removeprefix(part)
        if here in parameters:
            # The average is read into the operator itself; the weights behind it into memory that is dropped.
            tensors[f"{EMA}{there}"] = tensor
            tensor = torch.empty_like(tensor)
        tensors[f"{MODEL}{there}"] = tensor
    return tensors


@torch.no_grad()
def _start_stage(session: Session) -> Session:
    """Initialise the stage from its frozen parts and its first batches."""
    tasks = range(len(session.tasks))
    with session.autocast():
        session.objective.initialise([_first_batches(session, task) for task in tasks], session.ranks)
    decay = session.config.ema
    return replace(session, ema=Ema(session.operator, decay) if decay else None)


def _first_batches(session: Session, number: int) -> Iterable[Windows]:
    """Read this rank's share of a task's first batches. Not by the loader, which reads ahead."""
    task, order = session.tasks[number], session.task_schedule.sample_plans[number]
    for step in range(8):
        for micro_batch in range(order.accumulation):
            windows = task.batch(step, order.micro_batch_of(step, micro_batch))
            yield replace(windows.map(lambda tensor: tensor.to(session.ranks.device)), task=number)
