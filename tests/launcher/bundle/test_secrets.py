"""Secrets travel beside the bundle: where their values come from, and what is told where there is none."""

import os
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from tests.launcher.bundle.bundles import SPEC, run_of
from vastrun.launcher.bundle import Bundler
from vastrun.launcher.bundle.secret_values import value_in
from vastrun.launcher.core.errors import UsageError
from vastrun.launcher.core.job import Secret

RUN = run_of(SPEC)


@pytest.mark.parametrize("value", ["plain", "it's", "two\nlines", '$HOME `id` "\\', "grün", "'"])
def test_a_shell_reads_a_secret_back_as_it_was(value: str, tmp_path: Path) -> None:
    spec = replace(SPEC, secrets=(Secret(name="TOKEN"),))
    (tmp_path / "secrets.env").write_bytes(Bundler({"TOKEN": value}).secrets(spec))
    read = 'set -a; . "$1"; printf %s "$TOKEN"'
    done = subprocess.run(["sh", "-c", read, "sh", tmp_path / "secrets.env"], capture_output=True, check=True)
    assert done.stdout.decode() == value


def test_a_secret_comes_from_a_file_without_its_last_line_break(tmp_path: Path) -> None:
    (tmp_path / "key").write_text("abc\n")
    spec = replace(SPEC, secrets=(Secret(name="A", file=str(tmp_path / "key")), Secret(name="B")))
    assert Bundler({"B": "x"}).secrets(spec) == b"A='abc'\nB='x'\n"


@pytest.mark.parametrize("environment", [{}, {"TOKEN": ""}])
def test_a_secret_that_is_not_set_is_named_with_how_to_set_it(environment: dict[str, str]) -> None:
    with pytest.raises(UsageError, match="secrets: TOKEN is not set") as caught:
        Bundler(environment).secrets(replace(SPEC, secrets=(Secret(name="TOKEN"),)))
    assert "export TOKEN=" in caught.value.hint


@pytest.mark.parametrize("content", [None, b"", b"hunter2\xff", b"hunter2\0"])
def test_a_secret_file_that_does_not_serve_is_named_without_its_content(
    content: bytes | None, tmp_path: Path
) -> None:
    path = tmp_path / "key"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(UsageError, match="secrets: TOKEN") as caught:
        Bundler({}).secrets(replace(SPEC, secrets=(Secret(name="TOKEN", file=str(path)),)))
    assert "hunter2" not in repr(caught.value)
    assert caught.value.__cause__ is None or isinstance(caught.value.__cause__, OSError)


def test_secrets_come_from_an_env_file_and_from_commands(tmp_path: Path) -> None:
    (tmp_path / ".env").write_text("OTHER=x\nA='it is'  # secret\n")
    secrets = (
        Secret(name="A", env_file=str(tmp_path / ".env")),
        Secret(name="B", command="printenv C"),
        Secret(name="C"),
    )
    bundler = Bundler({"PATH": os.environ["PATH"], "C": "x"})
    lines = bundler.secrets(replace(SPEC, secrets=secrets)).splitlines()
    assert sorted(lines) == [b"A='it is'", b"B='x'", b"C='x'"]


@pytest.mark.parametrize(
    ("content", "fault"),
    [
        (None, "cannot be read from"),
        (b"TOKEN_2=hunter2", "has no line TOKEN="),
        (b"TOKEN='hunter2", "never closed"),
        (b"TOKEN=", "is empty"),
        (b"TOKEN=hunter2\xff", "not text in UTF-8"),
        (b"TOKEN=" + b"hunter2" * 200_000, "more than 1 MB"),
    ],
)
def test_an_env_file_without_the_secret_is_named_without_its_content(
    content: bytes | None, fault: str, tmp_path: Path
) -> None:
    path = tmp_path / ".env"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(UsageError, match="secrets: ") as caught:
        Bundler({}).secrets(replace(SPEC, secrets=(Secret(name="TOKEN", env_file=str(path)),)))
    assert fault in str(caught.value) and str(path) in str(caught.value)
    assert "hunter2" not in repr(caught.value)


def test_only_what_needs_no_command_is_known_without_running_it(tmp_path: Path) -> None:
    command = Secret(name="B", command="printf x >>calls; echo b", folder=str(tmp_path))
    spec = replace(SPEC, secrets=(Secret(name="A"), command))
    bundler = Bundler({"PATH": os.environ["PATH"], "A": "a"})
    assert bundler.known_secrets(spec, RUN) is None and not (tmp_path / "calls").exists()
    bundler.secrets(spec, RUN)
    assert bundler.known_secrets(spec, RUN) == b"A='a'\nB='b'\n"
    assert (tmp_path / "calls").read_text() == "x"


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("TOKEN=abc", "abc"),
        ("# TOKEN=no\n\nexport TOKEN = abc  # a comment\nOTHER=x\n", "abc"),
        ("TOKEN=abc#def", "abc#def"),
        ("TOKEN='a # \"b\" $HOME \\n'", 'a # "b" $HOME \\n'),
        ('TOKEN="a\\n\\"b\\" \\\\ \\$HOME \\d"  # c', 'a\n"b" \\ $HOME \\d'),
        ("TOKEN='two\nlines'\nOTHER=x", "two\nlines"),
        ("A='\nTOKEN=inside\n'\nTOKEN=outside", "outside"),
        ("TOKEN=first\nTOKEN=last", "last"),
        ("TOKEN=abc\r\nOTHER=x\r\n", "abc"),
        ("TOKEN=", ""),
        ("TOKEN=# nothing", ""),
        ("MY_TOKEN=abc\nTOKEN_2=abc\nTOKEN", None),
        ("", None),
    ],
)
def test_a_line_gives_a_value(text: str, value: str | None) -> None:
    assert value_in(text, "TOKEN") == value


@pytest.mark.parametrize("text", ["TOKEN='abc", 'TOKEN="abc', "TOKEN='a'b", "TOKEN='"])
def test_a_quote_that_is_not_closed_is_an_error_without_the_value(text: str) -> None:
    with pytest.raises(ValueError, match="closing") as caught:
        value_in(text, "TOKEN")
    assert "abc" not in str(caught.value)
