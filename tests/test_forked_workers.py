"""Workers are forked from one process, and one that crashes is named and followed by another."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.waiting import LONGEST_S

TESTS = """
import os
from pathlib import Path

with Path("imports").open("a") as file:
    file.write("imported\\n")

def test_a_worker_crashes():
    os._exit(1)

def test_an_assertion_is_explained():
    assert [1, 2] == [1, 3]

def test_workers_are_told_apart():
    assert os.environ["PYTEST_XDIST_WORKER"].startswith("gw")
"""


@pytest.mark.skipif(sys.platform != "linux", reason="workers are forked on Linux alone")
@pytest.mark.slow
def test_tests_are_imported_once_for_all_workers_and_a_crash_is_told(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text("from tests.conftest import *\n")
    (tmp_path / "test_some.py").write_text(TESTS)
    root = Path(__file__).parents[1]
    environ = {name: value for name, value in os.environ.items() if "PYTEST" not in name}

    done = subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "-n2", "-p", "no:cacheprovider", "-p", "no:random_order"),
            *("-c", root / "pyproject.toml", f"--rootdir={tmp_path}", tmp_path),
        ],
        env=environ | {"PYTHONPATH": str(root)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=LONGEST_S,
    )

    assert (tmp_path / "imports").read_text() == "imported\n", done.stdout
    assert "crashed while running 'test_some.py::test_a_worker_crashes'" in done.stdout
    assert "At index 1 diff: 2 != 3" in done.stdout
    assert "2 failed, 1 passed" in done.stdout
