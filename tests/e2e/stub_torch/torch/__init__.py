"""Stands for torch where a test is about the box: it takes no seconds to import."""

from __future__ import annotations

import sys
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any


class _Submodule(ModuleType):
    """Has every name: that of an empty class."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return type(name, (), {})


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
