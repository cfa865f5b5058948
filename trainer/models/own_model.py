"""Own model: an `nn.Module` of the user's code as an operator (docs/own-model.md).

    Net(grid=(64,), channels=1, conditions=2, **model.options)
    net(fields, conditions) -> change

Shapes: B samples, K channels of the field, X points by axis, C conditions.
"""

import hashlib
import random
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch._guards import detect_fake_mode
from torch.nn.parameter import is_lazy

from vastrun.trainer import user_code
from vastrun.trainer.errors import ConfigError
from vastrun.trainer.job.config import ModelConfig, TrainConfig
from vastrun.trainer.models.operator import Domain, NetworkOperator
from vastrun.trainer.models.weights import count_parameters, store_as_pairs

_KEY = "train.model.name"
_BATCH_NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm)


class OwnModel(NetworkOperator):
    """Operator whose network is a module of the user.

    The module gets normalised fields, and returns their change, or the difference from the mean solution of a
    steady problem.
    """

    def __init__(self, config: ModelConfig, domains: Sequence[Domain]) -> None:
        """Build the module on the CPU. Raises ConfigError."""
        super().__init__(domains)
        [domain] = domains
        self.name = config.name
        maker = find(config.name)
        arguments = {"grid": domain.grid, "channels": domain.channels, "conditions": domain.conditions}
        call = ", ".join(f"{name}={value!r}" for name, value in {**arguments, **config.options}.items())
        # Weights may be drawn from these generators, too; torch's own was seeded by the caller.
        random.seed(torch.initial_seed())
        np.random.seed(torch.initial_seed() % 2**32)
        # Not on the meta device: a user's module need not be able to draw its weights a second time.
        with user_code.ExplainedErrors("train.model", f"{config.name}({call}) failed"), torch.device("cpu"):
            net = maker(**arguments, **config.options)
        if not isinstance(net, nn.Module):
            raise ConfigError(f"{_KEY}: expected an nn.Module from {config.name}({call}), got {_kind(net)}")
        self.net = net
        for fault in _parameter_faults(self.net):
            raise ConfigError(f"{_KEY}: {config.name} {fault}")
        self.initial_weights = _checksum(self.net)
        """Checksum of the initial weights; None with fake tensors, which have no values."""
        store_as_pairs(self.net)
        # In a tuple, so that they are not registered a second time.
        self._blocks = (_blocks_of(self.net),)
        self.register_state_dict_post_hook(_drop_other_than_tensors)

    @property
    def drawn_modules(self) -> list[nn.Module]:
        return [self.net]

    @property
    def blocks(self) -> nn.ModuleList:
        """Attribute `blocks` of the module, or else its largest list of modules; empty when it has none."""
        return self._blocks[0]

    def check_options(self, config: TrainConfig, world_size: int) -> None:
        """Raise ConfigError for an option of the job that does not work with this module."""
        for fault in _option_faults(config, self, world_size):
            raise ConfigError(fault)

    def predict_change(self, fields: Tensor, conditions: Tensor, task: int) -> Tensor:  # noqa: ARG002 - there is one
        """Map fields (B, K, *X) and conditions (B, C) to (B, K, *X). Raises ConfigError for another one."""
        change: Any = self.net(fields, conditions)
        if fault := _result_fault(change, fields):
            raise ConfigError(f"{_KEY}: {self.name} returned {fault}")
        result: Tensor = change
        return result


def find(name: str) -> Any:
    """Return the attribute that `module:attribute` names in the user's code. Raises ConfigError."""
    module_name, _, attribute = name.partition(":")
    with user_code.ExplainedErrors(_KEY, f"cannot import {module_name}"):
        module = user_code.import_module(module_name)
    if not hasattr(module, attribute):
        place = getattr(module, "__file__", None) or module_name
        raise ConfigError(f"{_KEY}: expected a class {attribute}, an nn.Module, in {place}, which has none")
    return getattr(module, attribute)


def _parameter_faults(net: nn.Module) -> Iterator[str]:
    """Yield what the trainer does not support in the tensors of a module."""
    names: dict[Tensor, str] = {}
    for name, tensor in net.named_parameters(remove_duplicate=False):
        if is_lazy(tensor):
            yield f"has the lazy parameter {name}; expected shapes that are known when it is built"
        elif tensor.dtype not in (torch.float32, torch.complex64):
            yield f"has the parameter {name} of type {tensor.dtype}; expected float32 or complex64"
        elif tensor.device.type != "cpu":
            yield f"has the parameter {name} on {tensor.device}; expected the CPU, from which it is moved"
        elif tensor in names:
            yield f"has one parameter under two names, {names[tensor]} and {name}; expected one for each"
        names[tensor] = name
    if not any(tensor.requires_grad for tensor in names):
        yield "has no parameters to train; expected some, with requires_grad"


def _option_faults(config: TrainConfig, model: OwnModel, world_size: int) -> Iterator[str]:
    """Yield the options of a job that do not work with this module, each as one line."""
    statistics = [
        name
        for name, module in model.net.named_modules()
        if isinstance(module, _BATCH_NORMS) and module.running_mean is not None
    ]
    if statistics and world_size > 1:
        yield (
            f"{_KEY}: {model.name} has running statistics of batches ({statistics[0]}), which differ between "
            "ranks; expected another norm, such as nn.GroupNorm, or one rank"
        )
    needs_blocks = {
        "optim.name: muon": config.optim.name == "muon",
        f"compile: {config.compile}": config.compile in ("blocks", "max-autotune"),
        f"activation_checkpointing: {config.activation_checkpointing}": config.activation_checkpointing
        != "off",
    }
    for option, is_set in needs_blocks.items():
        if is_set and not len(model.blocks):
            yield (
                f"train.{option} works on blocks, and {model.name} has none; expected an nn.ModuleList "
                "as its attribute `blocks`"
            )


def _result_fault(result: Any, fields: Tensor) -> str | None:
    """Return how a result differs from what is expected of a call with `fields`; None: it is right."""
    expected = f"expected the change of the fields, a tensor {tuple(fields.shape)}"
    if not isinstance(result, Tensor):
        return f"{_kind(result)}; {expected}"
    if result.shape != fields.shape:
        return f"a tensor {tuple(result.shape)}; {expected}"
    if not result.is_floating_point():
        return f"a tensor of type {result.dtype}; {expected} of floating-point numbers"
    return None


def _kind(value: Any) -> str:
    return "None" if value is None else f"a {type(value).__name__}"


def _blocks_of(net: nn.Module) -> nn.ModuleList:
    own = getattr(net, "blocks", None)
    if isinstance(own, (nn.ModuleList, nn.Sequential)):
        return own
    lists = [module for module in net.modules() if isinstance(module, nn.ModuleList)]
    # The parts of a container are called one by one, it is not.
    containers = (nn.ModuleList, nn.ModuleDict, nn.ParameterList, nn.ParameterDict)
    usable = [each for each in lists if len(each) and not any(isinstance(one, containers) for one in each)]
    return max(usable, key=count_parameters, default=nn.ModuleList())


def _checksum(net: nn.Module) -> str | None:
    tensors = [tensor.detach() for tensor in (*net.parameters(), *net.buffers())]
    if detect_fake_mode(tensors) is not None:
        return None
    plain = (torch.view_as_real(tensor) if tensor.is_complex() else tensor for tensor in tensors)
    # As text: Python's hash of a NaN is the address of the object, which differs between ranks.
    sums = " ".join(tensor.double().sum().item().hex() for tensor in plain)
    return hashlib.sha256(sums.encode()).hexdigest()[:12]


def _drop_other_than_tensors(_: nn.Module, state: dict[str, Any], *__: Any) -> None:
    """Remove entries of the state that are no tensors: a checkpoint holds tensors only."""
    for name in [name for name, value in state.items() if not isinstance(value, Tensor)]:
        del state[name]
