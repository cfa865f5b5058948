"""What a command prints: its data on stdout, all else on stderr, and nothing that steers a terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from launcher.gate.text import printable

if TYPE_CHECKING:
    from launcher.render.documents import Document


def say(text: str, *, err: bool = False) -> None:
    """Print the text, of whatever origin."""
    click.echo(printable(text), err=err)


def show(document: Document, text: str, *, as_json: bool) -> None:
    """Print the command's data, on stdout."""
    from launcher.render.documents import to_text  # slow to import: all that is shown

    say(to_text(document) if as_json else text)
