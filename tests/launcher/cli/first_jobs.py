"""Type `vastrun init` in a folder of code, and read the job file that it wrote."""

from pathlib import Path

from click.testing import CliRunner, Result

from vastrun.launcher.cli import cli
from vastrun.launcher.config.job_loader import load_job
from vastrun.launcher.core.job import JobSpec


def init(*arguments: str) -> Result:
    return CliRunner().invoke(cli, ["init", *arguments])


def written(folder: Path, name: str = "job.yaml") -> JobSpec:
    text = (folder / name).read_text(encoding="utf-8")
    assert text.startswith("# yaml-language-server: $schema=.vastrun/job.schema.json\n")
    return load_job(text, name, (), str(folder))
