"""`vastrun schema`: print the JSON Schema of job files, batch files and --json documents."""

from __future__ import annotations

import click

from vastrun.launcher.cli.output import say
from vastrun.launcher.core.errors import UsageError
from vastrun.launcher.package_files import schemas


@click.command("schema")
@click.argument("words", metavar="[job|batch|COMMAND]", nargs=-1)
def command(words: tuple[str, ...]) -> None:
    """Print the JSON Schema (draft-07) of job files, batch files or the --json output of a command.

    Without an argument, list all schemas. An editor with a YAML language server completes and checks a file
    whose first line names its schema:

    \b
      vastrun schema job > job.schema.json
      # yaml-language-server: $schema=job.schema.json

    For the output of a command:

    \b
      vastrun schema status
      vastrun schema batch results

    `result` is the schema of result.json, which is next to a run's outputs.
    """
    files = schemas()
    if not words:
        say("\n".join(name.replace("-", " ") for name in files))
        return
    name = "-".join(words)
    if name not in files:
        raise UsageError(f"there is no schema for {' '.join(words)}", hint="vastrun schema lists them")
    say(files[name].read_text(encoding="utf-8").rstrip("\n"))
