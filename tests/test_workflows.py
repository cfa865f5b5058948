"""The workflows hold no keys, grant each job what it needs, and call what exists."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from vastrun.launcher.cli import cli

ROOT = Path(__file__).parent.parent
WORKFLOWS = sorted((ROOT / ".github/workflows").glob("*.yml"))


def jobs_of(path: Path) -> dict[str, Any]:
    jobs: dict[str, Any] = yaml.safe_load(path.read_text(encoding="utf-8"))["jobs"]
    return jobs


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_a_workflow_reads_only_and_has_no_stored_key(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert yaml.safe_load(text)["permissions"] == {"contents": "read"}
    assert "secrets." not in text
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    assert set(re.findall(r"\bmake ([a-z-]+)", text)) <= set(targets)


def test_nothing_is_uploaded_before_the_release_is_checked() -> None:
    jobs = jobs_of(ROOT / ".github/workflows/release.yml")
    uploads = {name: job for name, job in jobs.items() if name != "check"}
    assert set(uploads) == {"pypi", "images", "site"}
    assert all(job["needs"] == "check" for job in uploads.values())
    assert all(job["permissions"]["id-token"] == "write" for job in uploads.values())
    assert "permissions" not in jobs["check"]


def test_the_images_are_published_by_a_command_that_exists() -> None:
    text = (ROOT / ".github/workflows/release.yml").read_text(encoding="utf-8")
    (options,) = re.findall(r"vastrun image publish (.*?) \|", text)
    said = CliRunner().invoke(cli, ["image", "publish", "--help"]).stdout
    assert all(option in said for option in re.findall(r"--[a-z]+", options))
    variants = jobs_of(ROOT / ".github/workflows/release.yml")["images"]["strategy"]["matrix"]["variant"]
    assert all(variant in said for variant in variants)
