"""The three parts: what runs around a program on its machine names nothing of the trainer."""

import ast
import re

import pytest

from tests.sources import ROOT, sources

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
