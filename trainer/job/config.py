"""Config: the `train:` section of a job file, its types and defaults. No torch: the launcher imports it."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, Literal, Self, cast

from vastrun.contract.job import Job
from vastrun.contract.limits import Count, Ge, Gt, Le, Lt, MinLen, Positive, Seed
from vastrun.contract.program import StageSpan, spans_of
from vastrun.contract.records import read_as
from vastrun.trainer.job.data_config import PARAMETERS, DataConfig
from vastrun.trainer.job.stage_config import GateConfig, Schedule, StageConfig, StageName

Weight = Annotated[float, Ge(0)]
MODELS = ("latent", "fno", "spectral")
"""Built-in models."""
MODEL_ARGUMENTS = ("grid", "channels", "conditions")
"""Keyword arguments that each model of the user's code is built with, besides `model.options`."""
_NO_OPTIONS = StageConfig()


@dataclass(frozen=True, kw_only=True)
class ModelConfig:
    """The operator: `latent` is a transformer over patches of a field, `fno` mixes its lowest frequencies,
    `spectral` does so on a coarse grid and maps every frequency linearly."""

    name: str = "auto"
    """A built-in model, or `module:attribute` in the user's code (docs/own-model.md). auto: chosen by
    `default_model` when the options of a training are read."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """Further keyword arguments of a model in the user's code."""
    dim: Annotated[int, Ge(8)] = 64
    depth: Count = 4
    mlp_ratio: Count = 2
    heads: Count = 4
    patch: Count = 8
    modes: Count = 12
    """Number of frequencies that a Fourier layer keeps along an axis."""
    points: Annotated[int, Ge(4)] = 32
    """`spectral`: points along an axis of the grid of its Fourier layers, at most those of the field."""

    @property
    def is_own(self) -> bool:
        """Tell whether the model is in the user's code."""
        return ":" in self.name


@dataclass(frozen=True, kw_only=True)
class OptimConfig:
    """The optimiser, and its learning rate: a linear warm-up, then a schedule, both per step."""

    name: Literal["adamw", "muon"] = "adamw"
    """muon: Muon for the matrices within the blocks, AdamW for the rest."""
    lr: Positive = 3e-3
    """The highest learning rate."""
    schedule: Schedule = "cosine"
    drop: Annotated[float, Gt(0), Lt(1)] = 0.5
    """With `step`: the factor of the learning rate at each drop."""
    drop_after: Count = 200
    """With `step`: steps between two drops."""
    weight_decay: Annotated[float, Ge(0)] = 0.01
    betas: tuple[Annotated[float, Ge(0), Lt(1)], Annotated[float, Ge(0), Lt(1)]] = (0.9, 0.98)
    warmup: Annotated[float, Ge(0), Le(1)] = 0.05
    """Share of the steps in which the learning rate rises."""
    clip: Positive = 1.0
    """Largest gradient norm; a larger gradient is scaled down to it."""


@dataclass(frozen=True, kw_only=True)
class ObjectiveConfig:
    """Weights of further terms of the loss, in addition to the relative error of the predicted fields."""

    spectral: Weight = 0.0
    """Weight of the error of the Fourier amplitudes along space, octave by octave."""
    conservation: Weight = 0.0
    """Weight of the error of the mean over space; only for problems with time."""


WandbMode = Literal["online", "offline", "off"]


def wandb_mode(configured: str, environ: Mapping[str, str]) -> WandbMode:
    """Return the destination of W&B's data for a job's `wandb.mode`, in the environment of the ranks."""
    fixed: dict[str, WandbMode] = {"online": "online", "offline": "offline", "off": "off"}
    # auto: without a key nothing is sent, and the user can still send it later.
    return fixed.get(configured) or ("online" if environ.get("WANDB_API_KEY") else "offline")


@dataclass(frozen=True, kw_only=True)
class WandbConfig:
    """Options of Weights & Biases, to which rank 0 reports."""

    mode: Literal["auto", "online", "offline", "off"] = "auto"
    """auto: online when WANDB_API_KEY is set, else offline."""
    project: str = "vastrun"
    entity: str | None = None
    tags: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class MlflowConfig:
    """Options of MLflow, to which rank 0 reports; needs the package mlflow-skinny on the machine."""

    mode: Literal["off", "auto", "online", "offline"] = "off"
    """auto: online when MLFLOW_TRACKING_URI is set, else offline, in `run/mlruns`."""
    experiment: Annotated[str, MinLen(1)] = "vastrun"
    tags: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Fsdp2Config:
    """Options of `fsdp2` that trade memory for communication."""

    reshard_after_forward: bool = True
    """true: weights are gathered again for the backward pass; false: they are kept, in more memory."""
    cpu_offload: bool = False
    """true: weights, gradients and optimiser state are kept in the machine's main memory."""


@dataclass(frozen=True, kw_only=True)
class ActivityLimits:
    """Seconds without progress that a rank may have in slow activities; None: the same as at the start."""

    compile_s: Positive | None = None
    eval_s: Positive | None = None
    checkpoint_s: Positive | None = None


@dataclass(frozen=True, kw_only=True)
class LoaderConfig:
    """Options for loading micro-batches to the device when the trajectories are not kept there."""

    workers: Count = 2
    """Processes of each rank that read from files, with `data.keep: disk`."""
    prefetch: Count = 2
    """Micro-batches that the reading thread, or each worker, reads ahead."""
    pin: bool = True
    """GPU only: copy from pinned memory, so that the training does not wait for the copy."""


@dataclass(frozen=True, kw_only=True)
class SamplerConfig:
    """Sampling options of the stages `refine`, `distill` and `steady`."""

    steps: Count | None = None
    """Noise levels from pure noise down to none; None: the default of the stage."""
    draws: Count = 1
    """Number of draws, whose mean is the prediction."""
    temperature: Annotated[float, Ge(0)] | None = None
    """Scale of the noise from which a draw begins; 0 yields the centre of all draws. None: the default of the
    stage, 0 for `refine` and `distill`, 1 for `steady`."""


@dataclass(frozen=True, kw_only=True)
class ProfileConfig:
    """Steps that rank 0 records with `torch.profiler`, and the history of GPU memory (docs/training.md)."""

    step: Count | None = 50
    """First recorded step, counted from 0; None: no step is recorded."""
    steps: Annotated[int, Ge(1), Le(100)] = 5
    """Number of recorded steps."""
    shapes: bool = False
    """Record the shapes of each operation's inputs; makes the recorded steps slower."""
    memory: bool = False
    """GPU only: record allocations, and write a snapshot of the memory at an out-of-memory error."""


@dataclass(frozen=True, kw_only=True)
class TrainConfig:
    """All options of one training."""

    stage: StageName = "operator"
    """Stage to train. All but `operator` start from the checkpoint of another stage (docs/stages.md)."""
    stages: tuple[StageName, ...] = ()
    """Instead of `stage`: stages to train one after another on the same machine, each from the weights of the
    one before it. Steps, checkpoints and metrics count on from stage to stage."""
    stage_options: Mapping[StageName, StageConfig] = field(default_factory=dict)
    """With `stages`: options of single stages, as `refine: {steps: 800, optim: {lr: 0.001}}`."""
    gate: GateConfig = field(default_factory=GateConfig)
    """Scores that each stage must reach at its end, else the run fails; no limits: it passes."""
    sampler: SamplerConfig = field(default_factory=SamplerConfig)
    steps: Count = 1500
    batch: Count = 48
    """Windows in a turn, over all ranks; must be a multiple of the number of ranks."""
    turns: Count | None = None
    """Turns in a step, each of one task, the same on all ranks; None: as many as there are tasks."""
    mixing: Literal["balanced", "proportional", "temperature"] = "balanced"
    """Distribution of turns: equal, by the tasks' sizes, or by these to the power 1 / temperature."""
    temperature: Annotated[float, Ge(1)] = 2.0
    unroll: Count = 3
    """Frames predicted in a row while training; a steady problem has only one."""
    noise: Annotated[float, Ge(0)] = 0.01
    """Standard deviation of the noise added to input frames, relative to that of the data."""
    augment: bool = True
    """Turn, mirror or shift windows at random, where that makes another solution of the same PDE."""
    seed: Seed = 0
    data: Annotated[tuple[DataConfig, ...], MinLen(1)] = (DataConfig(),)
    """The tasks that are learned; a job file may give a single one without a list."""
    model: ModelConfig = field(default_factory=ModelConfig)
    objective: ObjectiveConfig = field(default_factory=ObjectiveConfig)
    freeze: Literal["off", "codec"] = "off"
    """codec: encoders and decoders keep the weights of the checkpoint that the training starts from."""
    optim: OptimConfig = field(default_factory=OptimConfig)
    wandb: WandbConfig = field(default_factory=WandbConfig)
    mlflow: MlflowConfig = field(default_factory=MlflowConfig)
    strategy: Literal["auto", "single", "ddp", "fsdp2"] = "auto"
    """auto: single for one rank, ddp when a GPU holds the whole training state, else fsdp2."""
    fsdp2: Fsdp2Config = field(default_factory=Fsdp2Config)
    precision: Literal["fp32", "tf32", "bf16", "fp16"] = "fp32"
    """tf32: like fp32, but a GPU rounds the factors of products to 10 bits, and is several times as fast."""
    deterministic: bool = False
    """Use only kernels that return the same bits each time: a resumed run then ends with the same weights as
    an uninterrupted one, on the same number and kind of GPUs (docs/training.md)."""
    compile: Literal["off", "blocks", "whole", "max-autotune"] = "off"
    """max-autotune: like blocks; Inductor times several kernels for each operation and uses the fastest."""
    cuda_graphs: bool = False
    """Needs `compile` and one GPU."""
    activation_checkpointing: Literal["off", "selective", "full"] = "off"
    """full: keep only the inputs of blocks, and compute the rest again in the backward pass; selective: keep
    the outputs of matrix products and attention, too."""
    remainder: Literal["carry", "drop", "pad"] = "carry"
    """Treatment of the trajectories that do not fill an epoch's last batch (see vastrun/epochs.py)."""
    loader: LoaderConfig = field(default_factory=LoaderConfig)
    check_every: Count = 100
    """Steps between two checks that all ranks hold the same numbers."""
    micro_batch: Count | None = None
    """Windows that a rank computes at once; None: all of its share of the batch."""
    out_of_memory: Literal["restart", "fail"] = "restart"
    """restart: restart the ranks with half the micro-batch; fail: end the run."""
    ema: Annotated[float, Gt(0), Lt(1)] | None = None
    """Decay of the running average of the weights, which is evaluated instead; None: no average."""
    tensorboard: bool = False
    """Write the metrics as TensorBoard files, too; needs its package."""
    plots: bool = True
    """Draw pictures of the scores; needs matplotlib."""
    profile: ProfileConfig | None = None
    """Steps to record; None: no step is recorded."""
    log_every: Count = 10
    """Steps between two lines of metrics."""
    evaluate_every: Count | None = None
    """Steps between two evaluations on `data.validation`; None: no evaluation during the training."""
    checkpoint_every: Count = 500
    """Steps between two checkpoints."""
    keep_checkpoints: Annotated[int, Ge(2)] = 2
    """Number of the newest checkpoints to keep."""
    keep_best: bool = True
    """Keep the best checkpoint, too: by the lowest loss, or rollout nRMSE with `evaluate_every`."""
    threads: Count = 1
    """CPU threads per rank."""
    limits: ActivityLimits = field(default_factory=ActivityLimits)

    def __post_init__(self) -> None:
        # Once and for all: a stored job keeps its model, whatever a later version would choose.
        if self.model.name == "auto":
            object.__setattr__(self, "model", replace(self.model, name=default_model(self)[0]))

    @property
    def stage_spans(self) -> tuple[StageSpan, ...]:
        """Return the stages in their order, each with its steps among those of the run."""
        names = self.stages or (self.stage,)
        return spans_of([(name, self.options_of(name).steps or self.steps) for name in names])

    @property
    def total_steps(self) -> int:
        """Return the steps of all stages."""
        return self.stage_spans[-1].end_step

    @property
    def first_stage(self) -> str:
        """Return the stage that is trained first."""
        return self.stages[0] if self.stages else self.stage

    def options_of(self, stage: str) -> StageConfig:
        """Return the options that only this one of several stages has."""
        return next((own for name, own in self.stage_options.items() if str(name) == stage), _NO_OPTIONS)

    def gate_of(self, stage: str) -> GateConfig:
        """Return the scores that a stage must reach."""
        return self.options_of(stage).gate or self.gate

    def of_stage(self, name: str) -> Self:
        """Return the options of one of the stages, as a job that trains that stage alone would give them."""
        if not self.stages:
            return self
        own = self.options_of(name)
        options = {
            key: value
            for key in ("steps", "unroll", "checkpoint_every", "gate")
            if (value := getattr(own, key)) is not None
        }
        optim = {key: value for key, value in vars(own.optim).items() if value is not None}
        # What another stage reads is at its default, as in a job of this stage alone.
        unread: dict[str, Any] = (
            {"sampler": SamplerConfig()}
            if name == "operator"
            else {"freeze": "off", "objective": ObjectiveConfig()}
        )
        return replace(
            self,
            stage=next(stage for stage in self.stages if stage == name),
            stages=(),
            stage_options={},
            optim=replace(self.optim, **optim),
            **unread,
            **options,
        )

    @property
    def requires_checkpoint(self) -> str | None:
        """Return the key that requires a checkpoint to start from; None: no key does."""
        if self.first_stage != "operator":
            return "stages" if self.stages else "stage"
        return None if self.freeze == "off" else "freeze"


def default_model(train: TrainConfig) -> tuple[str, str]:
    """Return the model of a job that names none, and the reason (docs/training.md#which-model)."""
    data, model = train.data[0], train.model
    has_patches = (model.heads, model.patch, data.patch) != (ModelConfig.heads, ModelConfig.patch, None)
    is_later = bool(train.stages) or train.stage != "operator" or train.freeze != "off"
    if len(train.data) > 1 or is_later or has_patches:
        return "latent", "the only one with several tasks, later stages, heads or patches"
    if data.steady:
        return "latent", "on a CPU the lowest error of a steady problem"
    if data.task in PARAMETERS and data.axes < 3 and data.points >= model.points:
        return "spectral", "on a CPU the lowest error of one task in time"
    return "latent", "no other was measured on such data"


def config_of(job: Job) -> TrainConfig:
    """Read the options of a training from its job. Raises RecordError, a ValueError."""
    return cast(TrainConfig, read_as(TrainConfig, job.program.config))
