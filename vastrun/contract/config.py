"""Config: the `train:` section of a job file, its types and defaults. No torch: the launcher imports it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Annotated, Any, Literal

from vastrun.contract.limits import Ge, Gt, Le, Lt, MinLen
from vastrun.contract.profiling import MAX_STEPS
from vastrun.contract.stage_config import GateConfig, Schedule, StageConfig
from vastrun.contract.stages import StageName, StageSpan, spans_of

Positive = Annotated[float, Gt(0)]
Count = Annotated[int, Ge(1)]
Seed = Annotated[int, Ge(0), Lt(2**63)]
Weight = Annotated[float, Ge(0)]
Keep = Literal["device", "host", "disk"]
Auto = Literal["auto"]

ParameterKey = Literal["betas", "nus", "rhos", "etas", "machs", "sources"]
MAX_RANGE_VALUES = 16
"""More values of a parameter have no scores of their own."""
PARAMETERS: Mapping[str, tuple[ParameterKey, ...]] = {
    "advection": ("betas",),
    "burgers": ("nus",),
    "compressible_1d": ("etas",),
    "compressible_2d": ("machs", "etas"),
    "compressible_3d": ("machs", "etas"),
    "darcy": ("sources",),
    "diffusion_reaction": (),
    "diffusion_sorption": (),
    "incompressible": (),
    "reaction_diffusion": ("nus", "rhos"),
    "shallow_water": (),
}
"""Built-in tasks, each with the keys that list the values of its PDE's parameters."""
_STEADY = ("darcy",)
MODELS = ("latent", "fno")
"""Built-in models."""
MODEL_ARGUMENTS = ("grid", "channels", "conditions")
"""Keyword arguments that each model of the user's code is built with, besides `model.options`."""
_AXES = {
    "compressible_2d": 2,
    "compressible_3d": 3,
    "darcy": 2,
    "diffusion_reaction": 2,
    "incompressible": 2,
    "shallow_water": 2,
}
"""Axes of the grids of built-in tasks that have more than one."""
_CHANNELS = {
    "compressible_1d": 3,
    "compressible_2d": 4,
    "compressible_3d": 5,
    "diffusion_reaction": 2,
    "incompressible": 5,
}
"""Channels of a frame of built-in tasks that have more than one; a steady problem has two frames."""
_BYTES_PER_VALUE = 4


_DIGITS = 4
"""Significant digits of the values within a range, which are part of file names."""
_NO_OPTIONS = StageConfig()


@dataclass(frozen=True, kw_only=True)
class DataConfig:
    """One task and its data set, which a built-in solver generates when its file does not exist."""

    task: str = "advection"
    """A built-in task, or `module:function` in the user's code (see trainer/data/__init__.py)."""
    betas: Annotated[tuple[Positive, ...], MinLen(1)] = (0.4, 1.0)
    """Speeds of `advection`. Each value has its own file, like those of the other parameters."""
    nus: Annotated[tuple[Positive, ...], MinLen(1)] = (0.01, 0.1)
    """Viscosities of `burgers`, diffusivities of `reaction_diffusion`."""
    rhos: Annotated[tuple[Positive, ...], MinLen(1)] = (1.0,)
    """Growth rates of `reaction_diffusion`, whose files have all combinations with `nus`."""
    etas: Annotated[tuple[Positive, ...], MinLen(1)] = (0.01,)
    """Viscosities of `compressible_1d`, `_2d` and `_3d`; shear and bulk viscosity are equal."""
    machs: Annotated[tuple[Positive, ...], MinLen(1)] = (0.1,)
    """Mach numbers of `compressible_2d` and `_3d`, whose files have all combinations with `etas`."""
    sources: Annotated[tuple[Positive, ...], MinLen(1)] = (1.0,)
    """Source terms of `darcy`; PDEBench calls them beta. The solution is proportional to it."""
    ranges: Mapping[ParameterKey, tuple[Positive, Positive]] = field(default_factory=dict)
    """Lowest and highest value of parameters that are sampled in training, each instead of its list."""
    range_values: Annotated[int, Ge(2), Le(MAX_RANGE_VALUES)] = MAX_RANGE_VALUES
    """Values of each range, evenly spaced in the logarithm; each has its own initial conditions."""
    unseen: Mapping[ParameterKey, tuple[Positive, ...]] = field(default_factory=dict)
    """Values of parameters that are tested on and not trained: `test` samples of each."""
    train: Count = 256
    """Initial conditions, or coefficients, to train on, per file."""
    keep: Keep = "device"
    """Place of the training data: on the GPU, in memory that the ranks share, or in their files."""
    validation: Annotated[int, Ge(0)] = 0
    """Number of `train`, per file, that are held out: `evaluate_every` rolls them out."""
    test: Count = 64
    """Initial conditions, or coefficients, to test on, per file."""
    points: Annotated[int, Ge(16)] = 64
    """Points of the grid along an axis."""
    frames: Annotated[int, Ge(2)] = 21
    """Points in time, including the first one."""
    dt: Positive = 0.1
    """Time between two frames."""
    seed: Seed = 2022
    """Seed of the initial conditions."""
    patch: Count | None = None
    """Points of a patch along an axis, for this task; None: `model.patch`."""

    @property
    def steady(self) -> bool:
        """Tell whether this is a built-in task whose problem has no time."""
        return self.task in _STEADY

    @property
    def axes(self) -> int:
        """Return the number of the grid's axes; 1 for a user's task, which may have any number."""
        return _AXES.get(self.task, 1)

    @property
    def file_gb(self) -> float:
        """Return the GB of each file that a built-in task's solver writes; 0 for a user's task."""
        if self.task not in PARAMETERS:
            return 0.0
        frames = 2 if self.steady else self.frames
        values = frames * _CHANNELS.get(self.task, 1) * self.points**self.axes
        return (self.train + self.test) * values * _BYTES_PER_VALUE / 1e9

    def parameters_of(self, task: str) -> tuple[tuple[float, ...], ...]:
        """Return the parameters of each file of a built-in task: all combinations of its keys' values."""
        return tuple(product(*map(self.values_of, PARAMETERS[task])))

    def unseen_parameters_of(self, task: str) -> tuple[tuple[float, ...], ...]:
        """Return the PDE's parameters that are only tested on: `unseen` replaces the trained values."""
        keys = PARAMETERS[task]
        if self.unseen.keys().isdisjoint(keys):
            return ()
        return tuple(product(*(self.unseen.get(key, self.values_of(key)) for key in keys)))

    def values_of(self, key: ParameterKey) -> tuple[float, ...]:
        """Return the values of a parameter that are trained."""
        bounds = self.ranges.get(key)
        if bounds is None:
            values: tuple[float, ...] = getattr(self, key)
            return values
        (low, high), last = bounds, self.range_values - 1
        return tuple(float(f"{low * (high / low) ** (n / last):.{_DIGITS}g}") for n in range(last + 1))

    def has_ranges(self, task: str) -> bool:
        """Tell whether parameters of a built-in task are sampled from a range."""
        return not self.ranges.keys().isdisjoint(PARAMETERS[task])


@dataclass(frozen=True, kw_only=True)
class ModelConfig:
    """The operator: `latent` is a transformer over patches of a field, `fno` mixes its lowest frequencies."""

    name: str = "latent"
    """A built-in model, or `module:attribute` in the user's code (docs/own-model.md)."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """Further keyword arguments of a model in the user's code."""
    dim: Annotated[int, Ge(8)] = 64
    depth: Count = 4
    mlp_ratio: Count = 2
    heads: Count = 4
    patch: Count = 8
    fourier_dim: Annotated[int, Ge(0)] = 0
    """`latent`: channels of four Fourier layers next to the tokens; 0: no such layers."""
    keep_mean: bool = False
    """Predicted fields have the mean over space of their input, channel by channel."""
    modes: Count = 12
    """Number of frequencies that a Fourier layer keeps along an axis."""

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
class DilocoConfig:
    """Options of `diloco`, whose nodes train independently between two synchronisations."""

    every: Count = 20
    """Steps between two synchronisations. `steps`, `checkpoint_every` and `evaluate_every` are multiples of
    it."""
    outer_lr: Positive = 0.7
    """Learning rate of the outer optimiser, which follows the mean of the pseudo-gradients of the nodes."""
    outer_momentum: Annotated[float, Ge(0), Lt(1)] = 0.9
    """Nesterov momentum; with 0 and an `outer_lr` of 1 the weights are averaged."""
    min_nodes: Count | None = None
    """Minimum number of nodes, node 0 included: a node may leave while this many remain; None: none may."""
    replacements: Annotated[int, Ge(0)] = 2
    """With `min_nodes`: maximum number of machines that are rented to replace nodes that left."""


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
    """Steps that rank 0 records with `torch.profiler`, and the history of GPU memory (docs/profiling.md)."""

    step: Count | None = 50
    """First recorded step, counted from 0; None: no step until `vastrun profile` requests one."""
    steps: Annotated[int, Ge(1), Le(MAX_STEPS)] = 5
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
    batch: Count | Auto = 48
    """Windows in a turn, over all ranks; must be a multiple of the number of ranks. auto: before it rents,
    the launcher estimates the largest batch that fits into the GPUs; a training always receives a number."""
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
    latents: Literal["off", "disk"] = "off"
    """disk: cache the tokens of a frozen encoder for the training frames in files (docs/latents.md)."""
    optim: OptimConfig = field(default_factory=OptimConfig)
    wandb: WandbConfig = field(default_factory=WandbConfig)
    mlflow: MlflowConfig = field(default_factory=MlflowConfig)
    strategy: Literal["auto", "single", "ddp", "fsdp2", "diloco"] = "auto"
    """auto: single for one rank, ddp when a GPU holds the whole training state, else fsdp2. diloco: for
    nodes with a slow network in between; needs torchft (docs/nodes.md)."""
    fsdp2: Fsdp2Config = field(default_factory=Fsdp2Config)
    diloco: DilocoConfig = field(default_factory=DilocoConfig)
    precision: Literal["fp32", "tf32", "bf16", "fp16"] = "fp32"
    """tf32: like fp32, but a GPU rounds the factors of products to 10 bits, and is several times as fast."""
    deterministic: bool = False
    """Use only kernels that return the same bits each time: a resumed run then ends with the same weights as
    an uninterrupted one, on the same number and kind of GPUs (docs/deterministic.md)."""
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
    probe: Literal["auto", "on", "off"] = "auto"
    """Find the largest micro-batch that fits into memory, before the first step; auto: on GPUs, unless
    `deterministic`."""
    out_of_memory: Literal["restart", "retry", "fail"] = "restart"
    """restart: restart the ranks with half the micro-batch; retry: only the step; fail: end the run."""
    ema: Annotated[float, Gt(0), Lt(1)] | None = None
    """Decay of the running average of the weights, which is evaluated instead; None: no average."""
    tensorboard: bool = False
    """Write the metrics as TensorBoard files, too; needs its package."""
    plots: bool = True
    """Draw pictures of the scores; needs matplotlib."""
    profile: ProfileConfig | None = None
    """Steps to record; None: no step is recorded until `vastrun profile` requests one."""
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

    @property
    def global_batch(self) -> int:
        """Return `batch` as a number. Raises ValueError where `auto` was not resolved."""
        if self.batch == "auto":
            raise ValueError("train.batch: expected a number; the launcher resolves auto at the launch")
        return self.batch

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

    def of_stage(self, name: str) -> TrainConfig:
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
            else {"freeze": "off", "latents": "off", "objective": ObjectiveConfig()}
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
