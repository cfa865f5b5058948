"""Secrets travel beside the bundle: where their values come from, and what is told where there is none."""

from __future__ import annotations

import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from vastrun.contract.config import TrainConfig
from vastrun.launcher.bundle import Bundler
from vastrun.launcher.core.errors import UsageError
from vastrun.launcher.core.job import JobSpec, Secret

SPEC = JobSpec(name="job", train=TrainConfig(steps=7))


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
