"""`{resume}` in a command: a path, an option with it, or nothing on a fresh start."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from vastrun.contract.program import plain_name, with_resume


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


@pytest.mark.parametrize(
    "words",
    [
        ("env", "X=1", "bash", "-c", "printf %s {resume}"),
        ("timeout", "5", "sh", "-c", 'printf %s "{resume}"', "name"),
        ("sh", "-c", "exec sh -c 'printf %s {resume}'"),
        ("sh", "-ec", "echo x | xargs -I% sh -c 'printf \\\"%s\\\" {resume}'"),
        ("sh", "-c", "cat<<end\n{resume}\nend"),
        (sys.executable, "-c", "import os; os.system('printf {resume}')"),
        (sys.executable, "-c", "import sys; print(sys.argv[1])", "{resume}"),
    ],
)
def test_no_shell_runs_the_text_of_a_path_wherever_called(words: tuple[str, ...], tmp_path: Path) -> None:
    for path in (
        "/c/$(touch ran)",
        "/c/`touch ran`",
        "/c/x;touch ran",
        "/c/' ;touch ran; '",
        '/c/" ;touch ran;"',
    ):
        env = {**os.environ, "VASTRUN_RESUME": path}
        subprocess.run(with_resume(words, path), env=env, cwd=tmp_path, capture_output=True)
        assert not (tmp_path / "ran").exists(), path


def test_a_plain_path_stands_as_text_in_a_script_of_any_language() -> None:
    program = (sys.executable, "-c", "print(r'{resume}', '{resume:--from}')")
    printed = subprocess.run(with_resume(program, "/c/a=1.pt"), capture_output=True, text=True, check=True)
    assert printed.stdout == "/c/a=1.pt --from /c/a=1.pt\n"


@pytest.mark.parametrize(
    ("name", "plain"),
    [
        ("/box/epoch=3-step=100,a+b@c:d%e^f.ckpt", "/box/epoch=3-step=100,a+b@c:d%e^f.ckpt"),
        ("modèle_θ/重み.pt", "modèle_θ/重み.pt"),
        ("a b\n'c'\"d\"", "a_b__c__d_"),
        ("$(x)`y`;&|<>{}*?[]!#~\\", "__x__y" + 16 * "_"),
        ("-rf/--load=x", "_rf/_-load=x"),
        ("a\u202eb\x1b\udc80", "a_b__"),
    ],
)
def test_a_plain_name_has_nothing_that_a_shell_reads(name: str, plain: str) -> None:
    assert plain_name(name) == plain
