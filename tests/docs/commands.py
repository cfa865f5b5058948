"""The commands of vastrun, and what each takes."""

import re
import shlex
from collections.abc import Iterator

import click

from vastrun.launcher.cli import cli

WIDTH = 80


def root() -> click.Context:
    """Return the context of `vastrun` itself."""
    return click.Context(cli, info_name="vastrun")


def inner(context: click.Context, name: str, words: list[str]) -> click.Context | None:
    """Return the context of a command of the group; of one that `words` may yet choose, by them."""
    assert isinstance(context.command, click.Group)
    command = context.command.get_command(context, name)
    if command is None:
        return None
    chosen = command.make_context(name, list(words), context, resilient_parsing=True).command
    return click.Context(chosen, context, info_name=name, terminal_width=WIDTH)


def every(context: click.Context | None = None) -> Iterator[click.Context]:
    """Yield a context for each command, each group before what it holds."""
    context = context or root()
    assert isinstance(context.command, click.Group)
    for name in context.command.list_commands(context):
        one = inner(context, name, [])
        assert one is not None
        yield one
        group = context.command.get_command(context, name)
        if isinstance(group, click.Group):
            yield from every(click.Context(group, context, info_name=name))


def options() -> set[str]:
    """Return every option of every command."""
    contexts = [root(), *every()]
    return {
        option
        for context in contexts
        for parameter in context.command.get_params(context)
        for option in (*parameter.opts, *parameter.secondary_opts)
    }


def faults(line: str) -> list[str]:
    """Return why vastrun would refuse a command line, as far as that does not depend on its values."""
    words, context = words_of(line), root()
    while isinstance(context.command, click.Group) and words and not words[0].startswith("-"):
        name = words.pop(0)
        chosen = inner(context, name, words)
        if chosen is None:
            return [f"{context.command_path} has no command {name}"]
        context = chosen
    try:
        _, left, _ = context.command.make_parser(context).parse_args(words)
    except click.UsageError as error:
        return [error.format_message()]
    return [f"{context.command_path}: unexpected {word}" for word in left]


def words_of(line: str) -> list[str]:
    """Return the words after `vastrun`, as far as a pipe, a redirection, a remark or wide space."""
    words: list[str] = []
    command = re.split(" {2,}", line)[0]
    for word in shlex.split(command, comments=True)[1:]:
        if word[0] in "|;<>&(":
            break
        words.append(word.removesuffix(";"))
        if word.endswith(";"):
            break
    return words
