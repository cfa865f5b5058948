"""The shell tests of the box's scripts, by file: bats runs them, or a script of ours where it is missing."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.waiting import LONGEST_S

HERE = Path(__file__).parent


# They start a hundred shells, or wait for an API that never answers; tests of boxes run the same scripts.
@pytest.mark.slow
@pytest.mark.needs("bats")
@pytest.mark.parametrize("file", sorted(HERE.glob("*.bats")), ids=lambda file: file.stem)
def test_script(file: Path) -> None:
    # The Python itself: a shim of pyenv's takes ten times as long, some hundred times.
    env = os.environ | {"PATH": f"{sys.base_prefix}/bin:{os.environ['PATH']}"}
    done = subprocess.run(
        ["bats", "--print-output-on-failure", file],
        capture_output=True,
        text=True,
        timeout=2 * LONGEST_S,
        env=env,
    )
    assert done.returncode == 0, done.stdout + done.stderr
