"""Stage checks: find faults of `train:`, whether it trains one stage or several. No torch.

An option that only some of several stages read is no fault; one that none of them reads is.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from vastrun.trainer.job.config import TrainConfig
from vastrun.trainer.job.config_checks import faults_of, profile_checks, unread_data_options, wrong_values
from vastrun.trainer.job.config_effects import rejected_options
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
