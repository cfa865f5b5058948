"""`vastrun completion`: scripts for shells."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from vastrun.launcher.core.errors import UsageError


@click.command("completion")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish", "powershell"]))
@click.pass_context
def command(ctx: click.Context, shell: str) -> None:
    """Print the completion script of a SHELL.

    \b
      bash, in ~/.bashrc:                 eval "$(vastrun completion bash)"
      zsh, in ~/.zshrc, after compinit:   eval "$(vastrun completion zsh)"
      fish, in config.fish:               vastrun completion fish | source
      PowerShell, in $PROFILE:
        vastrun completion powershell | Out-String | Invoke-Expression

    PowerShell needs click 8.5 or newer. Its answers are tested; its script was never run in a PowerShell.
    """
    kind = get_completion_class(shell)
    if kind is None:
        raise UsageError(
            "the installed version of click has no completion for PowerShell", hint="upgrade click to 8.5"
        )
    click.echo(kind(ctx.find_root().command, {}, "vastrun", "_VASTRUN_COMPLETE").source())
