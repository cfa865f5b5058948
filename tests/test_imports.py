"""One-way imports, unique class names, no trainer in the machine's part: what `.importlinter` cannot say."""

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter

import grimp
import pytest

from tests.sources import ROOT, sources


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


def classes() -> Iterator[tuple[str, str]]:
    """Yield the name of every class of the packages, those within others too, and where it is."""
    for source in sources():
        for node in source.nodes:
            if isinstance(node, ast.ClassDef):
                yield node.name, f"{source.path}:{node.lineno}"


def test_no_class_name_exists_twice() -> None:
    places = defaultdict(list)
    for name, place in classes():
        places[name].append(place)
    assert len(places) > 500
    assert {name: found for name, found in places.items() if len(found) > 1} == {}


_TEXTS = re.compile(r"\bvastrun[./]trainer\b|\btrain\.\w+:|\"train\"")


def test_the_machines_part_reads_no_attribute_of_a_training() -> None:
    named = [
        f"{source.path}:{node.lineno}"
        for source in sources()
        if source.path.startswith("onstart/")
        for node in source.nodes
        if isinstance(node, ast.Attribute) and node.attr == "train"
    ]
    assert not named


@pytest.mark.parametrize("suffix", ["py", "sh"])
def test_the_machines_part_names_no_module_of_the_trainer(suffix: str) -> None:
    paths = sorted((ROOT / "onstart").rglob(f"*.{suffix}"))
    assert paths
    assert not [str(path) for path in paths if _TEXTS.search(path.read_text(encoding="utf-8"))]


_TRAINER_IN_LAUNCHER = re.compile(r"\bvastrun[./]trainer\b|\btrain\.(?!py\b)[a-z_]+")


def test_one_module_of_the_launcher_names_the_trainer() -> None:
    """By import, attribute or text; docstrings, which explain it to users, may."""
    naming = set()
    for source in sources():
        if not source.path.startswith("launcher/"):
            continue
        docs = {id(node.value) for node in source.nodes if isinstance(node, ast.Expr)}
        for node in source.nodes:
            if (
                (isinstance(node, ast.Attribute) and node.attr == "train")
                or (isinstance(node, ast.ImportFrom) and (node.module or "").startswith("vastrun.trainer"))
                or (
                    isinstance(node, ast.Constant)
                    and isinstance(node.value, str)
                    and id(node) not in docs
                    and _TRAINER_IN_LAUNCHER.search(node.value)
                )
            ):
                naming.add(source.path)
    assert naming == {"launcher/config/program_kinds.py"}
