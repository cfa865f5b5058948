"""`vastrun schema`: what an editor needs to complete and check job and batch files."""

from __future__ import annotations

import click

from launcher.cli.output import say
from launcher.shipped import schema_text


@click.command("schema")
@click.argument("kind", metavar="job|batch", type=click.Choice(["job", "batch"]))
def command(kind: str) -> None:
    """Print the JSON Schema (draft-07) of job files or batch files.

    An editor with a YAML language server completes and checks a file whose first line names it:

    \b
      vastrun schema job > job.schema.json
      # yaml-language-server: $schema=job.schema.json
    """
    say(schema_text(kind).rstrip("\n"))
