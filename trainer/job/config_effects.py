"""Config effects: find options of `train:` that have no effect. No torch: the launcher imports it.

An option without effect is rejected, since the user who set it expects one. Where the effect depends on the
machine, or on a switch that is changed for one run, nothing is said: the file may be right for another.
"""

from collections.abc import Callable, Iterator
from typing import Any

from vastrun.trainer.job.config import MODELS, TrainConfig
from vastrun.trainer.job.data_config import PARAMETERS, DataConfig

_Row = tuple[str, Callable[[TrainConfig], bool], str]
"""Keys, a test that they have an effect, and the fault if they have none; `{c}` is the configuration."""

_STAGE = "has no effect in the stage {c.stage}"
_MODEL = "has no effect with {c.model.name}"

_REJECTED: tuple[_Row, ...] = (
    ("freeze", lambda c: c.stage == "operator", f"{_STAGE}, which trains no operator"),
    ("sampler", lambda c: c.stage != "operator", _STAGE),
    ("objective noise", lambda c: c.stage == "operator", _STAGE),
    (
        "unroll",
        lambda c: not all(data.steady for data in c.data),
        "has no effect: a steady problem has one frame to predict",
    ),
    ("mixing", lambda c: len(c.data) > 1, "has no effect with one task"),
    (
        "temperature",
        lambda c: c.mixing == "temperature",
        "has no effect with mixing: {c.mixing}; expected mixing: temperature",
    ),
    (
        "optim.drop optim.drop_after",
        lambda c: c.optim.schedule == "step",
        "has no effect with optim.schedule: {c.optim.schedule}; expected step",
    ),
    (
        "fsdp2.reshard_after_forward fsdp2.cpu_offload",
        lambda c: c.strategy in ("auto", "fsdp2"),
        "has no effect with strategy: {c.strategy}; expected fsdp2",
    ),
    (
        "loader.prefetch loader.pin",
        lambda c: not {"host", "disk"}.isdisjoint(_data_places(c)),
        "has no effect with data.keep: device; host and disk read it",
    ),
    ("loader.workers", lambda c: "disk" in _data_places(c), "has no effect without data.keep: disk"),
    ("limits.compile_s", lambda c: c.compile != "off", "has no effect with compile: off"),
    ("model.heads model.patch", lambda c: c.model.name not in ("fno", "spectral"), _MODEL),
    ("model.points", lambda c: c.model.name not in ("latent", "fno"), _MODEL),
    ("model.modes", lambda c: c.model.name != "latent", _MODEL),
    (
        "model.dim model.depth model.mlp_ratio model.heads model.patch model.modes model.points",
        lambda c: not c.model.is_own,
        f"{_MODEL}; give its arguments under model.options",
    ),
    (
        "model.options",
        lambda c: c.model.name not in MODELS,
        "has no effect with {c.model.name}; expected it with a model of your own, module:attribute",
    ),
    (
        "model.patch",
        lambda c: any(data.patch is None for data in c.data),
        "has no effect: each task has its own data.patch",
    ),
)

_DEFAULTS = TrainConfig()
_DATA_DEFAULTS = DataConfig()


def rejected_options(config: TrainConfig) -> Iterator[tuple[str, str]]:
    """Yield (key, fault) for each option that was set and has no effect, with keys relative to `train`.

    An option counts as set when it differs from its default.
    """
    for keys, reads, fault in _REJECTED:
        if not reads(config):
            for key in keys.split():
                if _value_of(key, config) != _value_of(key, _DEFAULTS):
                    yield key, fault.format(c=config)


def rejected_data_options(at: str, config: TrainConfig, data: DataConfig) -> Iterator[tuple[str, str]]:
    """Yield (key, fault) for each option of the task at key `at` that was set and has no effect."""
    unread = {} if config.model.name == "latent" else {"patch": _MODEL.format(c=config)}
    if data.steady:
        unread |= dict.fromkeys(("frames", "dt"), f"has no effect with {data.task}, which is steady")
    if data.task in PARAMETERS:
        read = PARAMETERS[data.task]
        fault = f"has no effect with {data.task}" + (f", which reads {' and '.join(read)}" if read else "")
        unread |= {key: fault for keys in PARAMETERS.values() for key in keys if key not in read}
        unread |= {key: f"has no effect with a range of {key}" for key in read if key in data.ranges}
        for name in ("ranges", "unseen"):
            yield from ((f"{at}.{name}.{key}", fault) for key in getattr(data, name) if key not in read)
    else:
        unread["unseen"] = "has no effect with a task of your own"
    if not data.ranges:
        unread["range_values"] = "has no effect without ranges"
    for key, fault in unread.items():
        if getattr(data, key) != getattr(_DATA_DEFAULTS, key):
            yield f"{at}.{key}", fault


def _value_of(key: str, config: TrainConfig) -> Any:
    """Return the value of a dotted key; None where its section is missing."""
    found: Any = config
    for name in key.split("."):
        found = None if found is None else getattr(found, name)
    return found


def _data_places(config: TrainConfig) -> set[str]:
    return {data.keep for data in config.data}
