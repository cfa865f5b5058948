"""`vastrun completion`: scripts for shells."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class


@click.command("completion")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def command(ctx: click.Context, shell: str) -> None:
    """Print the completion script of a SHELL.

    \b
      bash, in ~/.bashrc:                 eval "$(vastrun completion bash)"
      zsh, in ~/.zshrc, after compinit:   eval "$(vastrun completion zsh)"
      fish, in config.fish:               vastrun completion fish | source

    There is none for PowerShell: commands run there as in any other shell, without completion.
    """
    kind = get_completion_class(shell)
    assert kind is not None
    click.echo(kind(ctx.find_root().command, {}, "vastrun", "_VASTRUN_COMPLETE").source())
