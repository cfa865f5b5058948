"""What a Python is asked about itself: by any Python, also one that is too old."""

import ast
import json
import subprocess
import sys
from pathlib import Path

from vastrun.launcher.commands import computer, python_probe

PROBE = Path(python_probe.__file__)


def answering(folder: Path, answer: str) -> str:
    """A program that answers so, whatever it is asked."""
    program = folder / "python"
    program.write_text(f"#!/bin/sh\ncat <<'END'\n{answer}\nEND\n")
    program.chmod(0o755)
    return str(program)


def test_it_names_the_version_and_what_is_lacking() -> None:
    said = subprocess.run([sys.executable, PROBE, "json", "no_such_module"], capture_output=True, check=True)
    assert json.loads(said.stdout) == {"version": list(sys.version_info[:2]), "missing": ["no_such_module"]}


def test_an_old_python_understands_the_question() -> None:
    ast.parse(PROBE.read_text(encoding="utf-8"), feature_version=(3, 7))


def test_a_python_that_is_too_old_is_told_before_what_it_lacks(tmp_path: Path) -> None:
    old = answering(tmp_path, '{"version": [3, 9], "missing": ["torch"]}')
    assert computer.python_fault(old) == "it is Python 3.9; 3.11 or newer is needed"


def test_a_program_that_is_no_python_is_told(tmp_path: Path) -> None:
    assert computer.python_fault(answering(tmp_path, "hello")) == "it ended with 0: "
