"""Imports go one way: what `.importlinter` cannot say, since it leaves a folder's own `__init__` out."""

from __future__ import annotations

from graphlib import CycleError, TopologicalSorter

import grimp
import pytest


def in_order(imports: dict[str, set[str]]) -> None:
    """Raise CycleError when a module imports itself by way of others."""
    TopologicalSorter(imports).prepare()


def test_no_module_imports_itself_by_way_of_others_not_even_for_its_types() -> None:
    graph = grimp.build_graph("vastrun", cache_dir=None)
    in_order({module: graph.find_modules_directly_imported_by(module) for module in graph.modules})


def test_a_circle_is_found() -> None:
    with pytest.raises(CycleError):
        in_order(
            {
                "vastrun.trainer.stages": {"vastrun.trainer.stages.losses"},
                "vastrun.trainer.stages.losses": {"vastrun.trainer.stages"},
            }
        )
