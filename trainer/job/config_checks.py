"""Config checks: find faults between fields of the `train:` section, of one stage or several.

An option that only some of several stages read is no fault; one that none of them reads is. No torch: the
launcher imports it.
"""

from collections.abc import Iterator
from dataclasses import replace
from difflib import get_close_matches
from keyword import iskeyword

from vastrun.trainer.job.config import MODEL_ARGUMENTS, MODELS, ModelConfig, TrainConfig
from vastrun.trainer.job.config_effects import rejected_data_options, rejected_options
from vastrun.trainer.job.data_checks import Check, batch_checks, tasks_by_key, tasks_checks, validation_checks
from vastrun.trainer.job.data_config import PARAMETERS, DataConfig
from vastrun.trainer.job.stage_config import FORMER, GateConfig

Fault = tuple[str, str]
"""Key relative to `train`, and text."""


def training_faults(config: TrainConfig, world_size: int) -> list[Fault]:
    """Return all faults between the fields of `train:`."""
    own = [*_list_faults(config), *_option_faults(config), *_gate_faults(config)]
    if not config.stages:
        return [*own, *faults_of(config, world_size)]
    # Stages of a wrong list have no options that could be checked.
    return own if own else _stage_faults(config, world_size)


def faults_of(config: TrainConfig, world_size: int) -> list[Fault]:
    """Return all faults between fields of a single stage."""
    return [*wrong_values(config, world_size), *rejected_options(config), *unread_data_options(config)]


def unread_data_options(config: TrainConfig) -> list[Fault]:
    """Return the faults of options of the tasks that were set and have no effect."""
    return [fault for key, data in tasks_by_key(config) for fault in rejected_data_options(key, config, data)]


def wrong_values(config: TrainConfig, world_size: int) -> list[Fault]:
    """Return the faults of `faults_of` but those of options that have no effect."""
    checks = [
        *tasks_checks(config),
        *batch_checks(config, world_size),
        *_objective_checks(config),
        *validation_checks(config),
        *_engine_checks(config, world_size),
        *(_deterministic_checks(config) if config.deterministic else ()),
        *profile_checks(config),
        *_model_checks(config),
        *_stage_checks(config),
    ]
    return [(key, fault) for wrong, key, fault in checks if wrong]


def _objective_checks(config: TrainConfig) -> list[Check]:
    return [
        (
            config.objective.conservation > 0 and all(data.steady for data in config.data),
            "objective.conservation",
            "expected a task with time: a steady problem has nothing to conserve",
        ),
        (
            config.freeze != "off" and config.model.name != "latent",
            "freeze",
            f"expected the model latent, got {config.model.name}, which has no codec",
        ),
    ]


def _engine_checks(config: TrainConfig, world_size: int) -> list[Check]:
    alone = world_size == 1 and config.strategy in ("auto", "single")
    graphs = config.cuda_graphs
    return [
        (
            config.strategy == "single" and world_size > 1,
            "strategy",
            f"expected one rank for single, got {world_size}",
        ),
        (
            graphs and config.compile == "off",
            "cuda_graphs",
            "expected compile to be blocks, whole or max-autotune, got off",
        ),
        (graphs and not alone, "cuda_graphs", "expected the strategy single, with one rank"),
        (
            config.fsdp2.cpu_offload and config.precision == "fp16",
            "precision",
            "expected bf16 or fp32 with fsdp2.cpu_offload: ranks agree on an overflow of fp16 on their GPUs",
        ),
    ]


def _deterministic_checks(config: TrainConfig) -> list[Check]:
    # `restart` is allowed: the plan, the evidence and a warning of the next start show the new micro-batch.
    return [
        (
            config.compile == "max-autotune",
            "compile",
            "expected off, blocks or whole with deterministic, got max-autotune: a resumed run may choose "
            "other kernels",
        ),
        (
            config.cuda_graphs,
            "cuda_graphs",
            "expected false with deterministic: a resumed run would record its kernels at another step",
        ),
    ]


def profile_checks(config: TrainConfig) -> list[Check]:
    """Check that the recorded steps are among those of the training."""
    if config.profile is None or config.profile.step is None:
        return []
    first, steps = config.profile.step, config.profile.steps
    expected = f"expected profile.step + profile.steps to be at most train.steps ({config.steps})"
    return [(first + steps > config.steps, "profile.step", f"{expected}, got {first} + {steps}")]


def _model_checks(config: TrainConfig) -> list[Check]:
    model = config.model
    if model.name != "latent":
        several = len(config.data) > 1
        one_task = f"{model.name} trains one task, got {len(config.data)}; latent trains several"
        return [
            *((True, "model.name", fault) for fault in _name_faults(model.name)),
            (several, "model.name", one_task),
            *(_own_checks(model) if model.is_own else ()),
            *([] if model.is_own else [_modes_check(model, config.data[0].points)]),
        ]
    heads = f"expected a divisor of model.dim ({model.dim}), got {model.heads}"
    patches = [_patch_check(model, key, data) for key, data in tasks_by_key(config)]
    return [(model.dim % model.heads > 0, "model.heads", heads), *patches]


def _name_faults(name: str) -> Iterator[str]:
    """Yield the fault of a name that is neither a built-in model nor `module:attribute`."""
    module, _, attribute = name.partition(":")
    words = [*module.split("."), attribute]
    if name in MODELS or all(word.isidentifier() and not iskeyword(word) for word in words):
        return
    near = get_close_matches(name, MODELS, n=1)
    meant = f"; did you mean {near[0]}?" if near else ""
    yield f"expected {', '.join(MODELS)}, or module:attribute of your own code, got {name!r}{meant}"


def _own_checks(model: ModelConfig) -> list[Check]:
    given = f"the data decide {', '.join(MODEL_ARGUMENTS)}: expected another argument of {model.name}"
    name = "expected the name of an argument in Python, got {!r}"
    return [
        check
        for key in model.options
        for check in (
            (key in MODEL_ARGUMENTS, f"model.options.{key}", given),
            (not key.isidentifier() or iskeyword(key), "model.options", name.format(key)),
        )
    ]


def _stage_checks(config: TrainConfig) -> list[Check]:
    sampler, stage, model = config.sampler, config.stage, config.model.name
    # Without a temperature only `steady` draws from noise; the default of the other stages is 0.
    still = sampler.temperature == 0 or (sampler.temperature is None and stage != "steady")
    if stage == "operator":
        return []
    own = [data for data in config.data if data.task in PARAMETERS]
    steps = f"expected 1 or 2 with the stage distill, got {sampler.steps}"
    return [
        (model != "latent", "model.name", f"expected latent with the stage {stage}, got {model}"),
        (
            stage == "steady" and not all(data.steady for data in own),
            "stage",
            "steady needs problems without time (darcy)",
        ),
        (
            sampler.draws > 1 and still,
            "sampler.draws",
            "all draws are identical without a sampler.temperature above 0",
        ),
        (stage == "distill" and (sampler.steps or 1) > 2, "sampler.steps", steps),
    ]


def _modes_check(model: ModelConfig, points: int) -> Check:
    is_coarse = model.name == "spectral" and model.points < points
    key, limit = ("model.points", model.points) if is_coarse else ("data.points", points)
    fault = f"expected at most half of {key} ({limit}), got {model.modes}"
    return (2 * model.modes > limit, "model.modes", fault)


def _patch_check(model: ModelConfig, at: str, data: DataConfig) -> Check:
    patch, key = data.patch or model.patch, f"{at}.patch" if data.patch else "model.patch"
    return (data.points % patch > 0, key, f"expected a divisor of {at}.points ({data.points}), got {patch}")


def _list_faults(config: TrainConfig) -> Iterator[Fault]:
    """Yield the faults of the list itself."""
    if config.stages and config.stage != "operator":
        yield "stage", "has no effect with stages; give one of the two"
    before: list[str] = []
    for name in config.stages:
        former = FORMER[name]
        if name in before:
            yield "stages", f"{name} appears twice"
        elif before and former is None:
            yield "stages", f"{name} starts from nothing: expected it first, got {', '.join(config.stages)}"
        elif before and former != before[-1]:
            yield (
                "stages",
                f"{name} starts from {former}: expected {former} directly before it, got {before[-1]}",
            )
        before.append(name)


def _option_faults(config: TrainConfig) -> Iterator[Fault]:
    """Yield the options of stages that are not trained."""
    for name in config.stage_options:
        if name not in config.stages:
            stages = ", ".join(config.stages)
            why = f"{name} is not one of the stages {stages}" if stages else "it needs stages"
            yield f"stage_options.{name}", f"has no effect: {why}"


def _gate_faults(config: TrainConfig) -> Iterator[Fault]:
    """Yield the conditions of gates that no stage can meet or miss."""
    names = config.stages or (config.stage,)
    gates: list[tuple[str, GateConfig, tuple[str, ...]]] = [("gate", config.gate, names)]
    for name in config.stage_options:
        if (gate := config.stage_options[name].gate) is not None:
            gates.append((f"stage_options.{name}.gate", gate, (name,)))
    for key, gate, stages in gates:
        if gate.helps and all(FORMER[name] is None for name in stages):
            yield f"{key}.helps", f"has no effect: {', '.join(stages)} is not compared with another stage"


def _stage_faults(config: TrainConfig, world_size: int) -> list[Fault]:
    """Return the faults of the options of each stage, one for each key."""
    found: dict[str, str] = {}
    for name in config.stages:
        # Steps to record are counted over all stages.
        stage = replace(config.of_stage(name), profile=None)
        for key, text in wrong_values(stage, world_size):
            found.setdefault(_key_of(config, name, key), text)
        for key, text in rejected_options(stage):
            if (own := _key_of(config, name, key)) != key:
                found.setdefault(own, text)
    whole = replace(config, steps=config.total_steps)
    unread = [dict(rejected_options(replace(config, stage=name, stages=()))) for name in config.stages]
    return [
        *found.items(),
        *((key, text) for wrong, key, text in profile_checks(whole) if wrong),
        *((key, text) for key, text in unread[0].items() if all(key in one for one in unread)),
        *unread_data_options(config),
    ]


def _key_of(config: TrainConfig, stage: str, key: str) -> str:
    """Return the key under which the job file gives this option of a stage."""
    own = config.options_of(stage)
    section, _, name = key.rpartition(".")
    options = own.optim if section == "optim" else own if not section else None
    if getattr(options, name, None) is not None and key != "optim":
        return f"stage_options.{stage}.{key}"
    return "stages" if key == "stage" else key
