"""`{resume}` in a command: a path, an option with it, or nothing on a fresh start."""

from __future__ import annotations

import os
import subprocess

import pytest

from vastrun.contract.resume_command import with_resume


@pytest.mark.parametrize(
    ("words", "resumed", "fresh"),
    [
        (["x", "{resume:--from}"], ["x", "--from", "/c/a b"], ["x"]),
        (["x", "{resume}", "y"], ["x", "/c/a b", "y"], ["x", "y"]),
        (["x", "--from={resume}"], ["x", "--from=/c/a b"], ["x", "--from="]),
        (["x", "${resume}", "{lr}"], ["x", "${resume}", "{lr}"], ["x", "${resume}", "{lr}"]),
    ],
)
def test_words_are_filled_in(words: list[str], resumed: list[str], fresh: list[str]) -> None:
    assert list(with_resume(tuple(words), "/c/a b")) == resumed
    assert list(with_resume(tuple(words), "")) == fresh


@pytest.mark.parametrize("shell", [("bash", "-c"), ("sh", "-c"), ("bash", "--norc", "-eo", "pipefail", "-c")])
@pytest.mark.parametrize(
    ("script", "resumed", "fresh"),
    [
        ("show x {resume:--from}", "<x><--from></c/a $b>", "<x>"),
        ("show {resume} y", "</c/a $b><y>", "<y>"),
        ('show "{resume}"', "</c/a $b>", "<>"),
    ],
)
def test_a_script_is_filled_in_by_its_shell_whatever_the_path_contains(
    shell: tuple[str, ...], script: str, resumed: str, fresh: str
) -> None:
    def printed(path: str) -> str:
        program = with_resume((*shell, "show() { printf '<%s>' \"$@\"; }; " + script), path)
        env = {**os.environ, "VASTRUN_RESUME": path}
        return subprocess.run(program, env=env, capture_output=True, text=True, check=True).stdout

    assert printed("/c/a $b") == resumed
    assert printed("") == fresh
