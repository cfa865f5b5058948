"""`vastrun init`: write a first job file."""

from __future__ import annotations

import shlex
from pathlib import Path

import click

from vastrun.launcher.cli.output import say
from vastrun.launcher.commands.init_job import WrittenJobFile, write_job_file
from vastrun.launcher.gate.text import one_line


@click.command("init")
@click.argument("script", metavar="[SCRIPT.py]", required=False)
@click.option(
    "--output",
    metavar="FILE",
    default="job.yaml",
    show_default=True,
    type=click.Path(path_type=Path, dir_okay=False),
    help="Job file to write.",
)
@click.option("--name", help="Name of the job [the folder's or the script's].")
@click.option("--force", is_flag=True, help="Replace the file if it exists.")
def command(script: str | None, output: Path, name: str | None, force: bool) -> None:
    """Write a commented job file for your own program, in the folder of its code.

    It says what the imports of the program, requirements.txt and pyproject.toml tell; no code is executed.
    What the program writes is shown by `vastrun rehearse`. Read the file before you launch it.
    Without SCRIPT, it is for train.py, main.py, run.py or finetune.py if one exists, else for the onboard
    trainer.
    """
    started = write_job_file(output.parent, script, output, name=name, force=force)
    say(_next_steps(started), err=True)
    say(str(output))


def _next_steps(started: WrittenJobFile) -> str:
    program, job = started.program, shlex.quote(str(started.job_file))
    if program is None:
        what = "the onboard trainer; name a script to run your own program"
    else:
        what = one_line(program.path) + (f", with {program.framework.name}" if program.framework else "")
    return (
        f"wrote {job}: {what}\n"
        f"read it, then see here what it does and writes: vastrun rehearse {job}\n"
        f"the same without a GPU:                         vastrun rehearse {job} --set resources.gpus=0\n"
        f"show offers and costs:                          vastrun plan {job} --provider vast"
    )
