"""`vastrun schema`: by what an editor checks job and batch files, and a program what is printed."""

from __future__ import annotations

import click

from vastrun.launcher.cli.output import say
from vastrun.launcher.core.errors import UsageError
from vastrun.launcher.shipped import schemas


@click.command("schema")
@click.argument("words", metavar="[job|batch|COMMAND]", nargs=-1)
def command(words: tuple[str, ...]) -> None:
    """Print the JSON Schema (draft-07) of job files, of batch files, or of what a command prints with --json.

    Without a name it lists them all. An editor with a YAML language server completes and checks a file whose
    first line names its schema:

    \b
      vastrun schema job > job.schema.json
      # yaml-language-server: $schema=job.schema.json

    Of a command's documents:

    \b
      vastrun schema status
      vastrun schema batch results

    `result` is that of result.json, which lies beside a run's outputs.
    """
    files = schemas()
    if not words:
        say("\n".join(name.replace("-", " ") for name in files))
        return
    name = "-".join(words)
    if name not in files:
        raise UsageError(f"there is no schema of {' '.join(words)}", hint="vastrun schema lists them")
    say(files[name].read_text(encoding="utf-8").rstrip("\n"))
