"""Train program: the kind of programs that the trainer is, as the launcher meets it. No torch."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from vastrun.contract.outcome import Outcome
from vastrun.contract.program import PrepareStep, ProgramSpec, StageSpan
from vastrun.contract.program_kind import JobContext, Program, ProgramFault, Proof
from vastrun.contract.workload import Workloads
from vastrun.trainer.job.config import TrainConfig, default_model
from vastrun.trainer.job.config_checks import training_faults
from vastrun.trainer.job.data_config import PARAMETERS
from vastrun.trainer.job.scores import score_lines
from vastrun.trainer.job.stage_config import GateConfig
from vastrun.trainer.job.workload import SAME_WORK, WorkloadQuery, same_work, strategy_for, work_done

PACKAGE = "vastrun.trainer"
TORCH = ("2.11", "2.16")
"""Versions that the trainer supports: from the first, below the second."""
PYTHON = "3.11"
"""Oldest Python that the trainer supports."""
MAX_RESTARTS: Mapping[str, int] = {"out_of_memory": 10, "signal": 3, "communication": 3, "hang": 2, "host": 3}
"""Default of `restarts` of a training: maximum restarts of its ranks on this machine, by cause."""
_PREPARE = (
    PrepareStep(name="35-check-model", cause="user_error", module=f"{PACKAGE}.workload.own_model"),
    PrepareStep(
        name="40-data", cause="data", module=f"{PACKAGE}.data", arguments=("generate", "--jobs", "auto")
    ),
    PrepareStep(name="42-check-data", cause="data", module=f"{PACKAGE}.data", arguments=("check", "--quick")),
    PrepareStep(name="evaluate", module=f"{PACKAGE}.evaluation"),
)
_KEY_OF = {"wandb": "WANDB_API_KEY", "mlflow": "MLFLOW_TRACKING_URI"}
"""Variable that a tracker needs to be online."""
_ADVICE = {
    "out_of_memory": "halve train.batch, or ask for more with resources.gpu_memory_gb",
    "diverged": "lower train.optim.lr or train.optim.clip, or raise train.optim.warmup; then: {edited}",
}
_TEMPLATE = """\
# The onboard trainer: a neural operator of a PDE, on data that its own solver makes.
train:
  steps: 1500
  batch: 48          # windows a turn over all ranks; a multiple of the ranks
  data:
    task: burgers    # or another of docs/data.md: reaction_diffusion, darcy, compressible_2d, …
  model: {dim: 24, depth: 4}   # spectral here, by the rule of docs/training.md; or name: latent, fno, …
  # optim: {lr: 3e-3}
  # wandb: {mode: online}    # needs secrets: WANDB_API_KEY
"""


@dataclass(frozen=True)
class TrainProgram(Program[TrainConfig]):
    """A training by the onboard trainer."""

    key = "train"
    config_type = TrainConfig
    title = "the onboard trainer"
    template = _TEMPLATE
    package = PACKAGE
    prepare = _PREPARE
    reports_steps = True
    estimate_module = f"{PACKAGE}.workload"
    export_module = f"{PACKAGE}.checkpoints.export"
    advice = _ADVICE
    unlike_work = (*SAME_WORK, "ema", "objective", "optim", "stage_options")

    @classmethod
    def upgrade(cls, section: Mapping[str, Any]) -> Mapping[str, Any]:
        """Read `strategy: diloco` as `ddp`, `out_of_memory: retry` as `restart`, no model as `latent`."""
        now = {("strategy", "diloco"): "ddp", ("out_of_memory", "retry"): "restart"}
        read = {key: now.get((key, str(value)), value) for key, value in section.items()}
        model = read.get("model", {})
        return read | ({"model": {"name": "latent", **model}} if isinstance(model, dict) else {})

    def validate(self, context: JobContext) -> Iterator[ProgramFault]:
        """Yield what is wrong with the section."""
        train, about = self.config, ("train", "ranks", "nodes", "resources.gpus")
        for key, text in training_faults(train, context.world_size):
            # A single task has no number.
            yield ProgramFault(key=re.sub(r"^data\b(?!\[)", "data[0]", key), text=text, about=about)
        if train.model.is_own and context.code is None:
            text = (
                f"{train.model.name} must be in the uploaded code, and the job uploads none; "
                "add code: {path: .}"
            )
            yield ProgramFault(key="model.name", text=text, about=("code", "train.model"))
        if train.wandb.mode == "online" and _KEY_OF["wandb"] not in context.variables:
            text = f"online needs {_KEY_OF['wandb']} among the secrets"
            yield ProgramFault(key="wandb.mode", text=text, about=("secrets",))
        if train.mlflow.mode == "online" and _KEY_OF["mlflow"] not in context.variables:
            text = f"online needs {_KEY_OF['mlflow']} in env or among the secrets"
            yield ProgramFault(key="mlflow.mode", text=text, about=("secrets", "env"))
        yield from self._solver_room(context)

    def _solver_room(self, context: JobContext) -> Iterator[ProgramFault]:
        """Yield a fault when the files that the solvers write do not fit on the disk.

        A job that downloads files may have no need of a solver.
        """
        tasks = [] if context.downloads_data else [d for d in self.config.data if d.task in PARAMETERS]
        files_gb = [data.file_gb for data in tasks for _ in data.parameters_of(data.task)]
        # The solved pieces of a file are on the disk until it is whole.
        needed_gb = sum(files_gb) + max(files_gb, default=0.0)
        if needed_gb > context.disk_gb:
            names = ", ".join(data.task for data in tasks)
            text = (
                f"the solvers of {names} need {needed_gb:.3g} GB of disk, but resources.disk_gb is "
                f"{context.disk_gb:g}: raise resources.disk_gb, or ask for fewer samples, frames or points"
            )
            yield ProgramFault(key="data", text=text, about=("resources.disk_gb",))

    def spec(self, context: JobContext) -> ProgramSpec:
        """Return how the training is started and watched."""
        train = _with_tags(self.config, context.tags)
        limits = {name.removesuffix("_s"): seconds for name, seconds in vars(train.limits).items()}
        may_expand = context.gpus and "PYTORCH_CUDA_ALLOC_CONF" not in context.variables
        return ProgramSpec(
            kind=self.key,
            module=f"{PACKAGE}.train",
            package=PACKAGE,
            config=asdict(train),
            env={
                "OMP_NUM_THREADS": str(train.threads),
                # Fragmented GPU memory can be used then, and larger micro-batches fit.
                **({"PYTORCH_ALLOC_CONF": "expandable_segments:True"} if may_expand else {}),
                **(_same_sums() if train.deterministic else {}),
            },
            prepare=_PREPARE,
            preload=(
                "torch._dynamo",  # else DDP's constructor imports it
                f"{PACKAGE}.loop",
                # Its import would take rank 0 half a second during its first steps.
                *(("wandb",) if train.wandb.mode != "off" else ()),
            ),
            torch=TORCH,
            python=PYTHON,
            keeps_records=True,
            uses_gloo=True,
            stages=train.stage_spans,
            activity_timeouts_s={name: seconds for name, seconds in limits.items() if seconds is not None},
            max_restarts=MAX_RESTARTS,
            global_batch_size=train.batch,
            out_of_memory="fail" if train.out_of_memory == "fail" else "halve",
            wandb_closer=f"{PACKAGE}.telemetry.tracker",
        )

    @property
    def stages(self) -> tuple[StageSpan, ...]:
        """Return its steps, in stages."""
        return self.config.stage_spans

    def work_done(self, step: float) -> float:
        """Return the work of the first `step` steps, in steps of mean work."""
        return work_done(self.config, step)

    @property
    def work(self) -> TrainConfig:
        """Return the options that affect the work of a step."""
        return same_work(self.config)

    @property
    def checkpoint_every(self) -> int:
        """Return the steps between two checkpoints."""
        return self.config.checkpoint_every

    @property
    def needs_checkpoint(self) -> str:
        """Return the key that makes it start from a checkpoint of another run; empty: none does."""
        return self.config.requires_checkpoint or ""

    @property
    def own_model(self) -> str:
        """Return the model of the user's code; empty: it is built in."""
        return self.config.model.name if self.config.model.is_own else ""

    def workload_query(self, context: JobContext) -> Mapping[str, Any]:
        """Return the query for the workload of a step.

        Keys that change no step are at their defaults, so that one result serves many jobs.
        """
        # Of several stages, the steps say how much each counts.
        steps = self.config.steps if self.config.stages else 1500
        train = replace(self.config, seed=0, steps=steps, evaluate_every=None)
        code = context.code if self.own_model else None
        return asdict(
            WorkloadQuery(train=train, world_size=context.world_size, gpus=context.gpus > 0, code=code)
        )

    def strategy(self, workloads: Workloads, world_size: int, gpu_bytes: int | None) -> str:
        """Return the strategy that it chooses on GPUs of that size."""
        return strategy_for(
            self.config, world_size=world_size, parameters=workloads.parameters, memory=gpu_bytes
        )[0]

    @property
    def precision(self) -> str:
        """Return the precision of its arithmetic."""
        return self.config.precision

    def fits_micro_batch(self) -> bool:
        """Return whether it makes its micro-batches smaller where memory is short."""
        return self.config.out_of_memory != "fail"

    def proofs(self, outcome: Outcome) -> Iterator[Proof]:
        """Yield the evidence that it did all its steps, and well."""
        total_steps = self.config.total_steps
        text = "the final record was written" if outcome.final_record else "the trainer wrote no final record"
        yield Proof(name="record", holds=outcome.final_record, text=text)
        text = f"{outcome.steps_done} of {total_steps} steps were done"
        yield Proof(name="steps", holds=outcome.steps_done == total_steps, text=text)
        yield _loss(outcome)
        yield _checkpoint(outcome, total_steps)
        spans, ends = self.config.stage_spans, {end.name: end for end in outcome.stages}
        for span in spans if len(spans) > 1 else ():
            end = ends.get(span.name)
            done = 0 if end is None else end.steps_done
            text = f"{done} of {span.steps} steps"
            if end is None or end.run_id is None:
                where = "was not finished" if done else "was not started"
                yield Proof(name=f"stage.{span.name}", holds=None, text=f"it {where}: {text}")
            elif end.missed is not None:
                yield Proof(name=f"stage.{span.name}", holds=False, text=f"{text}; gate missed: {end.missed}")
            else:
                passed = ", its gate passed" if self.config.of_stage(span.name).gate != GateConfig() else ""
                holds = end.steps_done == span.steps
                yield Proof(name=f"stage.{span.name}", holds=holds, text=f"{text}; it was scored{passed}")

    def score_lines(self, scores: Mapping[str, float]) -> list[str]:
        """Format the score of each task with its floor."""
        return score_lines(scores)

    @property
    def summary(self) -> str:
        """Describe it in one line."""
        tasks = ", ".join(data.task for data in self.config.data)
        each = ", ".join(f"{span.name} {span.steps}" for span in self.stages)
        stages = f", in {len(self.stages)} stages: {each}" if len(self.stages) > 1 else ""
        name, reason = default_model(self.config)
        reason = reason if self.config.model.name == name else "as the job says"
        return f"{self.title}: {tasks}, {self.total_steps} steps{stages}; {self.config.model.name}: {reason}"


def _with_tags(train: TrainConfig, tags: tuple[str, ...]) -> TrainConfig:
    """The job's tags are those of the W&B run and the MLflow run, too."""
    for name in ("wandb", "mlflow"):
        tracker = getattr(train, name)
        if tracker.mode != "off":
            merged = tuple(dict.fromkeys((*tags, *tracker.tags)))
            train = replace(train, **{name: replace(tracker, tags=merged)})
    return train


def _same_sums() -> dict[str, str]:
    """Make NVIDIA's libraries sum in the same order each time; they read this when they are loaded."""
    return {
        # With default workspaces cuBLAS may choose other kernels the next time, and torch rejects it.
        "CUBLAS_WORKSPACE_CONFIG": ":4096:8",
        # NVLink's switches sum in another order each time (NVIDIA/nccl#1497), and NCCL chooses among the
        # other algorithms by the expected speed of the machine.
        "NCCL_ALGO": "Ring",
    }


def _loss(outcome: Outcome) -> Proof:
    if outcome.loss_finite is None:
        return Proof(name="loss", holds=None, text="no loss was recorded")
    last = outcome.last_loss
    text = "the loss is not finite" if last is None else f"the last loss is {last:.4g}"
    return Proof(name="loss", holds=outcome.loss_finite, text=text)


def _checkpoint(outcome: Outcome, planned: int) -> Proof:
    last = outcome.checkpoint
    if last is None:
        return Proof(name="checkpoint", holds=None, text="there is no checkpoint")
    if not last.intact:
        return Proof(name="checkpoint", holds=False, text=f"the checksum of {last.path} does not match")
    if last.step != planned:
        text = f"the newest checkpoint is of step {last.step}, not {planned}; it is intact"
        return Proof(name="checkpoint", holds=False, text=text)
    return Proof(name="checkpoint", holds=True, text=f"the checkpoint of step {last.step} is intact")
