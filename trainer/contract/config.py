"""The `train:` section: what the onboard trainer learns and how. No torch: the launcher validates with it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Literal

from annotated_types import Ge, Gt, Le, Lt, MinLen

Positive = Annotated[float, Gt(0)]
Count = Annotated[int, Ge(1)]
Seed = Annotated[int, Ge(0), Lt(2**63)]
Weight = Annotated[float, Ge(0)]
Keep = Literal["device", "host", "disk"]

PARAMETERS = {
    "advection": "betas",
    "burgers": "nus",
    "darcy": "sources",
    "diffusion_reaction": None,
    "shallow_water": None,
}
"""Our own tasks, each with the key that lists the values of its PDE's parameter."""
_STEADY = ("darcy",)
_ON_A_LINE = ("advection", "burgers")


@dataclass(frozen=True, kw_only=True)
class DataConfig:
    """The data set: made by our own solver when its file is not there."""

    task: str = "advection"
    """One of our own, or `module:function` of the user's own code (see trainer/data/__init__.py)."""
    betas: Annotated[tuple[Positive, ...], MinLen(1)] = (0.4, 1.0)
    """Advection's speeds; each is a file of its own, and so is each of the next two."""
    nus: Annotated[tuple[Positive, ...], MinLen(1)] = (0.01, 0.1)
    """Burgers' viscosities."""
    sources: Annotated[tuple[Positive, ...], MinLen(1)] = (1.0,)
    """What flows into Darcy's square; PDEBench calls it beta. The solution is proportional to it."""
    train: Count = 256
    """Initial conditions, or coefficients, to train on, per file."""
    keep: Keep = "device"
    """Where those lie while training: on the GPU, in memory that the ranks share, or in their files."""
    validation: Annotated[int, Ge(0)] = 0
    """How many of those, per file, are not trained on: `evaluate_every` rolls them out."""
    test: Count = 64
    points: Annotated[int, Ge(16)] = 64
    frames: Annotated[int, Ge(2)] = 21
    dt: Positive = 0.1
    seed: Seed = 2022
    patch: Count | None = None
    """Points of a patch along an axis, for this task; None: `model.patch`."""

    @property
    def steady(self) -> bool:
        """One of our own tasks without time."""
        return self.task in _STEADY

    @property
    def axes(self) -> int:
        """Of the grid; a task of the user's own may have any number."""
        return 1 if self.task in _ON_A_LINE or self.task not in PARAMETERS else 2

    def parameters_of(self, task: str) -> tuple[float | None, ...]:
        """One for each file of one of our own tasks; None where the PDE has no parameter."""
        key = PARAMETERS[task]
        return (None,) if key is None else getattr(self, key)


@dataclass(frozen=True, kw_only=True)
class ModelConfig:
    """The operator: `latent` is a transformer over patches of a field, `fno` mixes its lowest frequencies."""

    name: Literal["latent", "fno"] = "latent"
    dim: Annotated[int, Ge(8)] = 64
    depth: Count = 4
    """Blocks; of `unet`, at each station of the way down and up."""
    mlp_ratio: Count = 2
    heads: Count = 4
    patch: Count = 4
    core: Literal["plain", "unet"] = "plain"
    """unet: coarser tokens on the way down, finer ones on the way up, attention within windows."""
    levels: Count = 2
    """Of `unet`; each has half as many tokens along an axis as the one before."""
    window: Count = 8
    """Of `unet`: tokens that see each other, along an axis."""
    decoder: Literal["patch", "point"] = "patch"
    """patch: a linear map of each token; point: any points attend to all tokens."""
    modes: Count = 12
    """Of `fno`: frequencies along an axis."""


@dataclass(frozen=True, kw_only=True)
class OptimConfig:
    """The optimiser, and its learning rate: a linear warm-up, then a course, both per step."""

    name: Literal["adamw", "muon"] = "adamw"
    """muon: for the matrices within the blocks; AdamW trains the rest."""
    lr: Positive = 3e-3
    schedule: Literal["cosine", "linear", "plateau", "step", "constant"] = "cosine"
    drop: Annotated[float, Gt(0), Lt(1)] = 0.5
    """Share of the rate that is left after a drop: of `step`, and of `plateau`."""
    drop_after: Count = 200
    """Steps between two drops of `step`; steps without a better loss before one of `plateau`."""
    weight_decay: Annotated[float, Ge(0)] = 0.01
    betas: tuple[Annotated[float, Ge(0), Lt(1)], Annotated[float, Ge(0), Lt(1)]] = (0.9, 0.98)
    warmup: Annotated[float, Ge(0), Le(1)] = 0.05
    """Share of the steps."""
    clip: Positive = 1.0
    """Largest gradient norm."""


@dataclass(frozen=True, kw_only=True)
class ObjectiveConfig:
    """What else is made small, each by its weight, beside the relative error of the predicted fields."""

    spectral: Weight = 0.0
    """The error of the Fourier amplitudes along space, octave by octave."""
    conservation: Weight = 0.0
    """The error of the mean over space; of problems with time."""


@dataclass(frozen=True, kw_only=True)
class WandbConfig:
    """Weights & Biases, on rank 0."""

    mode: Literal["auto", "online", "offline", "off"] = "auto"
    """auto: online when WANDB_API_KEY is set, else offline."""
    project: str = "vastrun"
    entity: str | None = None
    tags: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Fsdp2Config:
    """How `fsdp2` trades memory for messages."""

    reshard_after_forward: bool = True
    """Weights are gathered once more for the backward pass; false keeps them."""
    cpu_offload: bool = False
    """Weights, gradients and optimiser lie in the machine's memory."""


@dataclass(frozen=True, kw_only=True)
class ActivityLimits:
    """How long a rank may stand still where that is no step; None: as long as at the start."""

    compile_s: Positive | None = None
    eval_s: Positive | None = None
    checkpoint_s: Positive | None = None


@dataclass(frozen=True, kw_only=True)
class LoaderConfig:
    """How micro-batches come to the device when the trajectories do not lie there."""

    workers: Count = 2
    """Processes of each rank that read from files."""
    start_method: Literal["forkserver", "spawn"] = "forkserver"
    """No `fork`: a copy of a rank has its sockets, and locks that its threads held."""
    prefetch: Count = 2
    """Micro-batches that the thread, or each worker, reads ahead."""
    pin: bool = True
    """GPU only: they are copied from pinned memory, which the training does not wait for."""
    persistent: bool = True
    """Workers live as long as the training; false: as long as an epoch, which frees what they gathered."""


@dataclass(frozen=True, kw_only=True)
class SamplerConfig:
    """How `refine`, `distill` and `steady` draw what they answer."""

    steps: Count | None = None
    """Noise levels from pure noise down to none; None: as many as the stage usually takes."""
    draws: Count = 1
    """The answer is the mean of so many."""
    temperature: Annotated[float, Ge(0)] | None = None
    """Share of the noise that a draw begins with; with 0 it is the middle of all draws. None: what the stage
    usually takes, 0 of `refine` and `distill`, 1 of `steady`."""


@dataclass(frozen=True, kw_only=True)
class TrainConfig:
    """One training."""

    stage: Literal["operator", "refine", "distill", "steady"] = "operator"
    """What is trained; all but `operator` start from the checkpoint of another stage (docs/stages.md)."""
    sampler: SamplerConfig = field(default_factory=SamplerConfig)
    steps: Count = 1500
    batch: Count = 48
    """Windows a turn over all ranks; must divide by the number of ranks."""
    turns: Count | None = None
    """Turns of a step, each of one task, the same on all ranks; None: as many as there are tasks."""
    mixing: Literal["balanced", "proportional", "temperature"] = "balanced"
    """Turns go to all tasks alike, by their sizes, or by these to the power 1 / temperature."""
    temperature: Annotated[float, Ge(1)] = 2.0
    unroll: Count = 3
    """Frames predicted in a row while training; of a steady problem, the only one."""
    noise: Annotated[float, Ge(0)] = 0.01
    """Standard deviation of the noise added to input frames, in units of the data's own."""
    augment: bool = True
    """Windows are turned, mirrored or shifted at random, where that makes another solution."""
    seed: Seed = 0
    data: Annotated[tuple[DataConfig, ...], MinLen(1)] = (DataConfig(),)
    """What is learned; a job file may give one task without a list."""
    model: ModelConfig = field(default_factory=ModelConfig)
    objective: ObjectiveConfig = field(default_factory=ObjectiveConfig)
    freeze: Literal["off", "codec"] = "off"
    """codec: encoders and decoders keep the weights of the checkpoint that is started from."""
    latents: Literal["off", "disk"] = "off"
    """disk: what a frozen encoder makes of the training frames is kept in files (docs/latents.md)."""
    optim: OptimConfig = field(default_factory=OptimConfig)
    wandb: WandbConfig = field(default_factory=WandbConfig)
    strategy: Literal["auto", "single", "ddp", "fsdp2"] = "auto"
    """auto: single for one rank, ddp when a GPU holds the whole training state, else fsdp2."""
    fsdp2: Fsdp2Config = field(default_factory=Fsdp2Config)
    precision: Literal["fp32", "bf16", "fp16"] = "fp32"
    compile: Literal["off", "blocks", "whole"] = "off"
    cuda_graphs: bool = False
    """Needs `compile` and one GPU."""
    activation_checkpointing: bool = False
    """Compute a block's activations again in the backward pass instead of keeping them."""
    remainder: Literal["carry", "drop", "pad"] = "carry"
    """What becomes of the trajectories that do not fill an epoch's last batch (see sampling/epochs.py)."""
    loader: LoaderConfig = field(default_factory=LoaderConfig)
    check_every: Count = 100
    """Steps between two looks at whether all ranks hold the same numbers."""
    micro_batch: Count | None = None
    """Windows that a rank computes at once; None: its whole share of the batch."""
    probe: Literal["auto", "on", "off"] = "auto"
    """Find the largest micro-batch that fits before the first step; auto: on GPUs."""
    out_of_memory: Literal["restart", "retry", "fail"] = "restart"
    """restart: the ranks start again with half of the micro-batch; retry: the step does; fail: it is over."""
    ema: Annotated[float, Gt(0), Lt(1)] | None = None
    """Decay of the average of the weights; scores are the average's then."""
    tensorboard: bool = False
    """Figures as TensorBoard's files, too; needs its package."""
    plots: bool = True
    """Pictures of the scores; they need matplotlib."""
    log_every: Count = 10
    evaluate_every: Count | None = None
    """Steps between two looks at how well the model does on `data.validation`; None: no look."""
    checkpoint_every: Count = 500
    keep_checkpoints: Annotated[int, Ge(2)] = 2
    keep_best: bool = True
    """The best one stays, too: of the lowest loss, with `evaluate_every` of the lowest rollout nRMSE."""
    threads: Count = 1
    """CPU threads a rank may use."""
    limits: ActivityLimits = field(default_factory=ActivityLimits)

    @property
    def builds_on(self) -> str | None:
        """The key that asks for a checkpoint to start from, if any does."""
        if self.stage != "operator":
            return "stage"
        return None if self.freeze == "off" else "freeze"
