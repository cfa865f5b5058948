"""Every key of `train:` changes something where it is read, and is refused where it does nothing."""

import json
from collections.abc import Callable, Iterator
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any, get_args, get_type_hints

import pytest
import torch
from torch import nn

from tests.programs import described
from tests.trainer import sessions
from tests.trainer.conftest import Box, Start
from tests.trainer.options import BURGERS, DARCY, FNO, SPECTRAL, TWO, Options, with_options
from tests.trainer.telemetry.mlflow_store import recorded_runs
from vastrun.contract import layout
from vastrun.contract.job import Job
from vastrun.contract.records import read_as
from vastrun.onstart.supervision.progress import stall_limit_s
from vastrun.trainer import data
from vastrun.trainer.distributed.group import Ranks
from vastrun.trainer.engine.session import Session
from vastrun.trainer.job.config import TrainConfig
from vastrun.trainer.job.config_checks import faults_of

pytestmark = pytest.mark.torch

REACTION = {**BURGERS, "task": "reaction_diffusion", "nus": [0.5], "rhos": [1.0]}
GAS = {**BURGERS, "task": "compressible_1d", "etas": [0.01]}
KEPT: Options = {"data.validation": 4, "evaluate_every": 2}

TAUGHT: tuple[tuple[str, Any, Options], ...] = (
    ("steps", 5, {}),
    ("batch", 4, {}),
    ("turns", 3, {}),
    ("mixing", "proportional", TWO | {"turns": 1, "seed": 1}),
    ("temperature", 1.0, TWO | {"turns": 1, "mixing": "temperature", "temperature": 9.0}),
    ("unroll", 1, {}),
    ("noise", 0.1, {}),
    ("augment", False, {}),
    ("seed", 1, {}),
    ("precision", "bf16", {}),
    ("remainder", "pad", {"batch": 10}),
    ("data.task", "burgers", {"data.betas": [0.4, 1.0]}),
    ("data.betas", [0.5], {"data.train": 24}),
    ("data.nus", [0.5], {"data": {**BURGERS, "nus": [0.1]}}),
    ("data.rhos", [5.0], {"data": REACTION}),
    ("data.etas", [0.1], {"data": GAS}),
    ("data.machs", [1.0], {"data": {**GAS, "task": "compressible_2d", "points": 16, "train": 4}}),
    ("data.sources", [2.0], DARCY | {"unroll": 3}),
    ("data.ranges", {"betas": [0.4, 1.0]}, {"data.betas": [0.4, 1.0]}),
    ("data.range_values", 3, {"data.ranges": {"betas": [0.4, 1.0]}, "data.range_values": 2}),
    ("data.train", 16, {}),
    ("data.validation", 2, {"evaluate_every": 2, "data.validation": 4}),
    ("data.points", 64, {}),
    ("data.frames", 7, {}),
    ("data.dt", 0.2, {}),
    ("data.seed", 1, {}),
    ("data.patch", 4, {}),
    ("model.name", "fno", {"model": {"name": "latent", "dim": 16, "depth": 2}}),
    ("model.dim", 8, {}),
    ("model.depth", 1, {}),
    ("model.mlp_ratio", 1, {}),
    ("model.heads", 4, {}),
    ("model.patch", 4, {}),
    ("model.modes", 4, FNO),
    ("model.points", 16, SPECTRAL),
    ("objective.spectral", 0.5, {}),
    ("objective.conservation", 0.5, {}),
    ("optim.name", "muon", {}),
    ("optim.lr", 0.01, {}),
    ("optim.schedule", "linear", {}),
    ("optim.drop", 0.1, {"optim.schedule": "step", "optim.drop_after": 2}),
    ("optim.drop_after", 1, {"optim.schedule": "step", "optim.drop_after": 2}),
    ("optim.weight_decay", 0.5, {}),
    ("optim.betas", [0.5, 0.9], {}),
    ("optim.warmup", 0.5, {}),
    ("optim.clip", 0.01, {}),
)
"""Key, another value, what stands beside it: the losses are others."""


def blocks_of(session: Session) -> list[str]:
    return [type(block).__name__ for block in session.operator.blocks]


def compiled_in(session: Session) -> list[bool]:
    return [hasattr(block.forward, "_torchdynamo_orig_callable") for block in session.operator.blocks]


def whole_after_use(session: Session) -> list[bool]:
    """Of each parameter of the blocks, whether the rank holds all of it between its passes."""
    session.model(session.loader.read(0, 0))
    block: nn.Module = session.operator.blocks[0]
    return [type(parameter).__name__ == "DTensor" for parameter in block.parameters()]


def read_ahead(session: Session) -> int:
    """Micro-batches that are read, though only the first was asked for."""
    session.loader.read(0, 0)
    return len([transfer.result() for _, transfer in session.loader._pending])  # type: ignore[attr-defined]


def workers_of(session: Session) -> int:
    """How many processes were made to read all steps; which of them live at a moment is a matter of time."""
    before = _processes_made()
    for step in range(session.config.steps):
        session.loader.read(step, 0)
    return _processes_made() - before - 1


def _processes_made() -> int:
    """This one included: a process that gets no name is named by its number."""
    import multiprocessing
    import re

    return int(re.split("[-:]", multiprocessing.Process().name)[-1])


BUILT: tuple[tuple[str, Any, Options, Callable[[Session], Any]], ...] = (
    ("strategy", "fsdp2", {}, lambda session: session.plan.strategy),
    ("fsdp2.reshard_after_forward", False, {"strategy": "fsdp2"}, whole_after_use),
    ("compile", "blocks", {}, compiled_in),
    ("activation_checkpointing", "full", {}, blocks_of),
    ("micro_batch", 2, {}, lambda session: session.plan.accumulation),
    ("threads", 2, {}, lambda _: torch.get_num_threads()),
    ("data.keep", "host", {}, lambda session: type(session.loader).__name__),
    ("loader.prefetch", 4, {"data.keep": "host"}, read_ahead),
    ("loader.workers", 1, {"data.keep": "disk"}, workers_of),
)
"""Key, another value, what stands beside it, and what of a rank is another then."""


def record_of(box: Box) -> Any:
    record = box.json(layout.FINAL)
    return {name: value for name, value in record["scores"].items() if "_s" not in name}


def saved_by(box: Box) -> list[str]:
    return sorted(path.name for path in (box.path / layout.CHECKPOINTS).glob("step-*"))


def told_by(box: Box) -> list[int]:
    return list(box.losses())


def looks_of(box: Box) -> list[int]:
    lines = (box.path / layout.METRICS).read_text().splitlines()
    return [point["step"] for point in map(json.loads, lines) if any("val" in name for name in point)]


def folders_of(box: Box) -> set[str]:
    files = (path.relative_to(box.path) for path in box.path.rglob("*") if path.is_file())
    return {f"{file.parent}/{file.suffix}" for file in files}


WORSE: Options = {"optim.lr": 3.0, "optim.schedule": "constant", "optim.warmup": 0.0}
LEFT: tuple[tuple[str, Any, Options, Callable[[Box], Any]], ...] = (
    ("ema", 0.9, {}, record_of),
    ("data.test", 3, {}, record_of),
    ("log_every", 3, {}, told_by),
    ("evaluate_every", 4, KEPT, looks_of),
    ("checkpoint_every", 2, {"keep_checkpoints": 5}, saved_by),
    ("keep_checkpoints", 3, {"checkpoint_every": 1, "keep_best": False}, saved_by),
    ("keep_best", False, {"checkpoint_every": 1, "steps": 8, **WORSE}, saved_by),
    ("tensorboard", True, {}, folders_of),
    ("data.unseen", {"betas": [0.7]}, {}, lambda box: box.json(layout.FINAL)["scores"].keys()),
    ("plots", True, {}, folders_of),
)
"""Key, another value, what stands beside it, and what of that which a run leaves is another then."""

SHARDS_ONLY = {
    "stage": "tests/trainer/stages/test_spreading.py",
    "model.options": "tests/trainer/models/test_own_models.py",
    "sampler.steps": "tests/trainer/stages/test_sampled.py",
    "sampler.draws": "tests/trainer/stages/test_losses.py",
    "sampler.temperature": "tests/trainer/stages/test_sampled.py",
    "freeze": "tests/trainer/engine/test_frozen_codec.py",
    "check_every": "tests/trainer/test_checks.py",
    "cuda_graphs": "tests/trainer/engine/test_plan.py",
    "deterministic": "tests/trainer/engine/test_determinism.py",
    "fsdp2.cpu_offload": "tests/trainer/engine/test_plan.py",
    "out_of_memory": "tests/onstart/supervision/test_restarting.py",
    "loader.pin": "tests/gpu/checks/running.py",
    **dict.fromkeys(
        ("profile.step", "profile.steps", "profile.shapes"), "tests/trainer/telemetry/test_profiler.py"
    ),
    "profile.memory": "tests/trainer/telemetry/test_profiler.py",
}
"""Keys that need a former training, several ranks or a GPU, and where they are shown."""
OF_STAGES = ("stages", "stage_options", "gate")
"""Sections of trainings in several stages, which tests/trainer/test_stages.py has."""


def leaves(kind: type, prefix: str = "") -> Iterator[str]:
    """Every key of a section, dotted; of `data`, those of each task."""
    for field in fields(kind):  # type: ignore[arg-type]
        hint = get_type_hints(kind)[field.name]
        inner = next((part for part in (hint, *get_args(hint)) if is_dataclass(part)), None)
        if inner is None:
            yield prefix + field.name
        else:
            assert isinstance(inner, type)
            yield from leaves(inner, f"{prefix}{field.name}.")


def losses(ranks: Ranks, root: Path, options: Options) -> list[tuple[float, float]]:
    session = begin(ranks, root, options)
    try:
        return sessions.learn(session, 0, min(session.config.steps, 5))
    finally:
        session.loader.close()


def begin(ranks: Ranks, root: Path, options: Options) -> Session:
    settings = with_options(options)
    config = sessions.config(**settings)
    assert faults_of(config, 1) == []
    root.mkdir(exist_ok=True)
    return sessions.begin(ranks, sessions.prepare(root / "box", **settings), settings)


def finished(start_ranks: Start, path: Path, options: Options) -> Box:
    box = Box(path, **with_options(options))
    for task in sessions.config(**with_options(options)).data:
        data.generate(task, box.path / layout.DATA)
    assert start_ranks(box, 1).wait() == [0], box.log(0)
    return box


def test_every_key_is_in_one_of_the_tables() -> None:
    tables = [TAUGHT, BUILT, LEFT]
    shown = [row[0] for table in tables for row in table]  # type: ignore[attr-defined]
    staged = [key for key in leaves(TrainConfig) if key.split(".")[0] in OF_STAGES]
    others = [*SHARDS_ONLY, *staged, *WANDB, *MLFLOW, *LIMITS]
    assert sorted([*shown, *others]) == sorted(leaves(TrainConfig))
    assert all(Path(path).is_file() for path in SHARDS_ONLY.values())


@pytest.mark.slow
@pytest.mark.parametrize(("key", "value", "beside"), TAUGHT, ids=[row[0] for row in TAUGHT])
def test_the_training_is_another(key: str, value: Any, beside: Options, alone: Ranks, tmp_path: Path) -> None:
    usual = losses(alone, tmp_path / "usual", beside)
    assert losses(alone, tmp_path / "other", beside | {key: value}) != usual


@pytest.mark.slow
@pytest.mark.usefixtures("fork_server")
@pytest.mark.parametrize(("key", "value", "beside", "seen"), BUILT, ids=[row[0] for row in BUILT])
def test_the_rank_is_built_otherwise(
    key: str, value: Any, beside: Options, seen: Callable[[Session], Any], alone: Ranks, tmp_path: Path
) -> None:
    found = []
    for name, options in {"usual": beside, "other": beside | {key: value}}.items():
        session = begin(alone, tmp_path / name, options)
        found.append(seen(session))
        session.loader.close()
    torch.set_num_threads(1)
    assert found[0] != found[1]


@pytest.mark.slow
@pytest.mark.parametrize(("key", "value", "beside", "seen"), LEFT, ids=[row[0] for row in LEFT])
def test_the_run_leaves_something_else(
    key: str, value: Any, beside: Options, seen: Callable[[Box], Any], start_ranks: Start, tmp_path: Path
) -> None:
    usual = finished(start_ranks, tmp_path / "usual", beside)
    assert seen(finished(start_ranks, tmp_path / "other", beside | {key: value})) != seen(usual)


WANDB = {
    "wandb.mode": "offline",
    "wandb.project": "eddies",
    "wandb.entity": "a-team",
    "wandb.tags": ["shear"],
}


@pytest.mark.slow
def test_wandb_is_told_what_the_job_says(start_ranks: Start, tmp_path: Path) -> None:
    pytest.importorskip("wandb")
    box = finished(start_ranks, tmp_path / "box", WANDB)
    [file] = box.path.rglob("*.wandb")
    written = file.read_bytes()
    assert all(word in written for word in (b"eddies", b"a-team", b"shear"))


MLFLOW = {"mlflow.mode": "offline", "mlflow.experiment": "eddies", "mlflow.tags": ["shear"]}


@pytest.mark.slow
@pytest.mark.needs("mlflow")
def test_mlflow_is_told_what_the_job_says(start_ranks: Start, tmp_path: Path) -> None:
    box = finished(start_ranks, tmp_path / "box", MLFLOW)
    (run,) = recorded_runs(box.path, "eddies")
    assert (run.info.status, run.data.tags["shear"]) == ("FINISHED", "true")


LIMITS = {"limits.compile_s": 7.0, "limits.eval_s": 8.0, "limits.checkpoint_s": 9.0}


@pytest.mark.parametrize(("key", "seconds"), LIMITS.items())
def test_the_supervisor_waits_as_long_as_the_job_says(key: str, seconds: float) -> None:
    job = {"run_id": "a", "name": "a", "ranks": 1, "gpus": 0, "stall_s": 60.0, "start_s": 60.0}
    train = with_options({key: seconds, "compile": "blocks"})
    stage = key.removeprefix("limits.").removesuffix("_s")
    assert stall_limit_s(read_as(Job, described({**job, "train": train})), stage) == seconds


@pytest.mark.parametrize(
    ("options", "keys"),
    [
        ({"optim.drop": 0.1}, ["optim.drop"]),
        ({"optim.drop_after": 7, "optim.schedule": "linear"}, ["optim.drop_after"]),
        ({"optim.drop_after": 7, "optim.schedule": "step"}, []),
        ({"temperature": 3.0}, ["temperature"]),
        ({"mixing": "proportional"}, ["mixing"]),
        (TWO | {"mixing": "temperature", "temperature": 3.0}, []),
        ({"loader.workers": 4, "loader.prefetch": 4}, ["loader.prefetch", "loader.workers"]),
        ({"loader.workers": 4, "loader.prefetch": 4, "data.keep": "host"}, ["loader.workers"]),
        ({"fsdp2.cpu_offload": True, "strategy": "ddp"}, ["fsdp2.cpu_offload"]),
        ({"fsdp2.reshard_after_forward": False, "strategy": "single"}, ["fsdp2.reshard_after_forward"]),
        ({"fsdp2.reshard_after_forward": False, "strategy": "fsdp2"}, []),
        (FNO | {"data.patch": 8}, ["data.patch"]),
        (FNO | {"model.points": 16}, ["model.points"]),
        ({"data.patch": 8, "model.patch": 4}, ["model.patch"]),
        (DARCY | {"unroll": 2}, ["unroll"]),
        ({"data": {**DARCY["data"], "frames": 9, "dt": 0.2}, "unroll": 3}, ["data.frames", "data.dt"]),
        ({"data.nus": [0.5]}, ["data.nus"]),
        ({"limits.compile_s": 7.0}, ["limits.compile_s"]),
        ({"sampler.draws": 3}, ["sampler"]),
    ],
)
def test_what_does_nothing_is_refused_before_money_is_spent(options: Options, keys: list[str]) -> None:
    faults = faults_of(sessions.config(**with_options(options)), 1)
    assert [key for key, _ in faults] == keys
    assert all("no effect" in fault for _, fault in faults)
