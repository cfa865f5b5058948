"""Stands for torch where a test is about the box: it starts ranks, and takes no seconds to import."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType, SimpleNamespace
from typing import Any

POLL_S = 0.05


class ChildFailedError(Exception):
    """Ranks did not exit 0."""

    def __init__(self, failures: Mapping[int, Any]) -> None:
        super().__init__(failures)
        self.failures = failures


def elastic_launch(config: SimpleNamespace, python: str) -> Callable[..., None]:
    """A call that runs its arguments on every rank of this machine until all have ended."""

    def launch(*arguments: str) -> None:
        each, first = config.nproc_per_node, config.rdzv_configs.get("node", 0) * config.nproc_per_node
        world_size = each * config.max_nodes
        _watch(
            {
                first + local: subprocess.Popen(
                    [python, *arguments], env=_environment(first + local, local, world_size)
                )
                for local in range(each)
            }
        )

    return launch


def _environment(rank: int, local_rank: int, world_size: int) -> dict[str, str]:
    return os.environ | {"RANK": str(rank), "LOCAL_RANK": str(local_rank), "WORLD_SIZE": str(world_size)}


def _watch(processes: Mapping[int, subprocess.Popen[bytes]]) -> None:
    """As torch's own does: the first rank that fails ends the others."""
    ranks = processes.values()
    while any(rank.poll() is None for rank in ranks) and not any(rank.poll() for rank in ranks):
        time.sleep(POLL_S)
    failures = {
        number: SimpleNamespace(exitcode=rank.returncode, timestamp=time.time(), message="")
        for number, rank in processes.items()
        if rank.returncode
    }
    for rank in ranks:
        rank.terminate()
        rank.wait()
    if failures:
        raise ChildFailedError(failures)


class _Submodule(ModuleType):
    """Has every name; those that nobody here knows are of empty classes."""

    _KNOWN: Mapping[str, Any] = {
        "ChildFailedError": ChildFailedError,
        "DefaultLogsSpecs": SimpleNamespace,
        "LaunchConfig": SimpleNamespace,
        "elastic_launch": elastic_launch,
        "rendezvous_handler_registry": SimpleNamespace(register=lambda *_: None),
    }

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return self._KNOWN.get(name) or type(name, (), {})


class _Submodules(Loader, MetaPathFinder):
    """All that is imported from below torch."""

    def find_spec(self, name: str, *_: object) -> ModuleSpec | None:
        below = name.startswith(f"{__name__}.") and name != f"{__name__}.version"
        return ModuleSpec(name, self, is_package=True) if below else None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return _Submodule(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        """It is whole as it is."""


sys.meta_path.insert(0, _Submodules())
