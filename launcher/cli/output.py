"""Printing: data on stdout, all else on stderr, without terminal control characters."""

from __future__ import annotations

import sys

import click

from vastrun.launcher.gate.text import printable

_MIN_WIDTH, _MAX_WIDTH = 60, 160


def say(text: str, *, err: bool = False) -> None:
    """Print a text, with its control characters removed."""
    click.echo(printable(text), err=err)


def note(text: str) -> None:
    """Print a line on stderr."""
    say(text, err=True)


def width() -> int | None:
    """Return the maximum width of tables in columns; None if stdout is not a terminal: nothing is cut."""
    if not sys.stdout.isatty():
        return None
    from vastrun.launcher.ui.screen import size

    return min(max(size(sys.stdout)[0], _MIN_WIDTH), _MAX_WIDTH)


def show(document: object, text: str, *, as_json: bool) -> None:
    """Print the command's data on stdout, as JSON or as text."""
    from vastrun.launcher.ui.documents.document import to_text

    say(to_text(document) if as_json else text)
