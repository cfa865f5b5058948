"""Parts that are missing: their tests are skipped and counted, and in CI they fail."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests import parts
from tests.waiting import LONGEST_S

CONFTEST = """
from tests import parts
from tests.conftest import *

parts.PARTS = {
    "anvil": parts.Part(what="an anvil", is_here=lambda: False,
        debian="sudo apt-get install anvil", macos="brew install anvil"),
    "hammer": parts.Part(what="a hammer", is_here=lambda: True, debian=""),
    "forge": parts.Part(what="a forge", is_here=lambda: False, debian="build one", macos="build one",
        is_system=True),
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


@pytest.mark.parametrize("options", [(), ("-n2",)], ids=["alone", "xdist"])
def test_what_is_missing_is_said_once_with_its_tests_and_the_command_that_brings_it(
    tmp_path: Path, options: tuple[str, ...]
) -> None:
    said = run(tmp_path, *options)
    install = "brew" if sys.platform == "darwin" else "sudo apt-get"
    assert f"\n4 tests skipped without an anvil; to run them: {install} install anvil\n" in said
    assert "\n1 test skipped: it is no Sunday\n" in said
    assert said.count("anvil") == 2
    assert "1 passed, 5 skipped" in said


def test_in_ci_a_missing_part_is_an_error(tmp_path: Path) -> None:
    said = run(tmp_path, CI="true")
    assert "this computer lacks an anvil" in said
    assert "1 passed, 1 skipped" in said
    assert "skipped without" not in said


def test_without_integration_no_system_is_needed_and_with_it_missing_ones_are_named(tmp_path: Path) -> None:
    without = run(tmp_path, "-m", "not integration", tests=OF_SYSTEMS)
    assert "1 passed, 2 deselected" in without
    assert "forge" not in without
    said = run(tmp_path, "-m", "integration", tests=OF_SYSTEMS)
    assert "2 tests skipped without a forge; to run them: build one" in said
    assert "2 skipped, 1 deselected" in said
    assert "1 deselected, 2 errors" in run(tmp_path, "-m", "integration", tests=OF_SYSTEMS, CI="true")


def test_nothing_is_said_where_nothing_is_missing() -> None:
    assert parts.lines([]) == []


def test_every_part_has_words_and_a_command() -> None:
    assert all(part.what and part.brings for part in parts.PARTS.values())


SHELL_TESTS = """
setup() { echo >>"$LEFT"; }
teardown() { echo over >>"$LEFT"; }
@test "good" {
  run sh -c 'echo said; exit 3'
  [[ $output == said && $status == 3 ]]
  run ! false
  [[ -d $BATS_TEST_TMPDIR ]]
}
@test "bad in the middle" {
  echo seen
  [[ a == b ]]
  true
}
@test "no failure" {
  run ! true
}
"""


def test_where_there_is_no_bats_its_tests_pass_and_fail_all_the_same(tmp_path: Path) -> None:
    (tmp_path / "some.bats").write_text(SHELL_TESTS)
    script = Path(__file__).parent / "onstart" / "without_bats.sh"
    done = subprocess.run(
        [script, tmp_path / "some.bats"],
        env=os.environ | {"LEFT": str(tmp_path / "left")},
        capture_output=True,
        text=True,
        timeout=LONGEST_S,
    )
    assert done.returncode == 1
    assert done.stdout.splitlines() == [
        "ok 1 good",
        "not ok 2 bad in the middle",
        "seen",
        "not ok 3 no failure",
    ]
    assert (tmp_path / "left").read_text().split() == ["over"] * 3
