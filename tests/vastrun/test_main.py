"""`python -m vastrun` is the command line where the launcher is installed, and says so where it is not."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.waiting import LONGEST_S
from vastrun.launcher import __version__
from vastrun.launcher.package_files import library_dir


def python_m_vastrun(folder: Path, *options: str) -> tuple[int, str]:
    command = [sys.executable, *options, "-m", "vastrun", "--version"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=LONGEST_S)
    return done.returncode, done.stdout + done.stderr


def test_the_module_is_the_command(tmp_path: Path) -> None:
    pytest.importorskip("click")
    code, said = python_m_vastrun(tmp_path)
    assert (code, said.split()[-1]) == (0, __version__)


def test_on_a_machine_without_the_launcher_it_says_what_to_install(tmp_path: Path) -> None:
    (tmp_path / "vastrun").mkdir()
    for name in ("__init__.py", "__main__.py"):
        shutil.copy(library_dir() / name, tmp_path / "vastrun" / name)
    # -S: no installed package is found, as on a machine.
    code, said = python_m_vastrun(tmp_path, "-S")
    assert (code, said) == (1, "vastrun: the launcher is not installed here: pip install vastrun\n")
