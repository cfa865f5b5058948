"""What a command prints: its data on stdout, all else on stderr, and nothing that steers a terminal."""

from __future__ import annotations

import sys

import click

from vastrun.launcher.gate.text import printable

_LEAST, _MOST = 60, 160


def say(text: str, *, err: bool = False) -> None:
    """Print the text, of whatever origin."""
    click.echo(printable(text), err=err)


def width() -> int | None:
    """Return how wide tables may be: as the terminal, within bounds.

    None where stdout is none: nothing is cut.
    """
    if not sys.stdout.isatty():
        return None
    from vastrun.launcher.ui.screen import size

    return min(max(size(sys.stdout)[0], _LEAST), _MOST)


def show(document: object, text: str, *, as_json: bool) -> None:
    """Print the command's data, on stdout."""
    from vastrun.launcher.ui.documents.document import to_text

    say(to_text(document) if as_json else text)
