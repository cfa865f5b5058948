"""Parts that are missing: their tests are skipped and counted, and in CI they fail."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.waiting import LONGEST_S

CONFTEST = """
from tests import parts
from tests.conftest import *

parts.PARTS = {
    "anvil": parts.Part("an anvil", lambda: False),
    "hammer": parts.Part("a hammer", lambda: True),
    "forge": parts.Part("a forge", lambda: False, is_system=True),
}
"""
TESTS = """
import pytest
from tests import parts

@pytest.fixture
def iron():
    parts.require("anvil")

@pytest.mark.needs("hammer")
def test_nails():
    pass

@pytest.mark.needs("hammer", "anvil")
@pytest.mark.parametrize("number", range(3))
def test_horseshoes(number):
    raise AssertionError

def test_swords(iron):
    raise AssertionError

def test_on_sundays():
    pytest.skip("it is no Sunday")
"""
OF_SYSTEMS = """
import pytest

@pytest.mark.needs("hammer", "forge")
def test_anchors():
    raise AssertionError

@pytest.mark.parametrize("metal", ["tin", pytest.param("iron", marks=pytest.mark.needs("forge"))])
def test_metals(metal):
    assert metal == "tin"
"""


def run(folder: Path, *options: str, tests: str = TESTS, **variables: str) -> str:
    """What pytest says of these tests at the end."""
    (folder / "conftest.py").write_text(CONFTEST)
    (folder / "test_smithy.py").write_text(tests)
    root = Path(__file__).parents[1]
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-q", "-c", root / "pyproject.toml"]
    environ = {name: value for name, value in os.environ.items() if name != "CI" and "PYTEST" not in name}
    done = subprocess.run(
        [*command, f"--rootdir={folder}", *options, folder],
        env=environ | {"PYTHONPATH": str(root), **variables},
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=LONGEST_S,
    )
    return done.stdout


def test_what_is_missing_is_said_with_its_tests(tmp_path: Path) -> None:
    said = run(tmp_path)
    assert "SKIPPED [3]" in said and "this computer lacks an anvil" in said
    assert "it is no Sunday" in said
    assert "1 passed, 5 skipped" in said


def test_in_ci_a_missing_part_is_an_error(tmp_path: Path) -> None:
    said = run(tmp_path, CI="true")
    assert "this computer lacks an anvil" in said
    assert "1 passed, 1 skipped" in said


@pytest.mark.slow
def test_without_integration_no_system_is_needed_and_with_it_missing_ones_are_named(tmp_path: Path) -> None:
    without = run(tmp_path, "-m", "not integration", tests=OF_SYSTEMS)
    assert "1 passed, 2 deselected" in without
    assert "forge" not in without
    said = run(tmp_path, "-m", "integration", tests=OF_SYSTEMS)
    assert "this computer lacks a forge" in said
    assert "2 skipped, 1 deselected" in said
    assert "1 deselected, 2 errors" in run(tmp_path, "-m", "integration", tests=OF_SYSTEMS, CI="true")
