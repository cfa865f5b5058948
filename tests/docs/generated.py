"""Pages that are made when the site is built: the first one, and those that list what the code has."""

from collections.abc import Callable, Mapping

from tests.conformance.assumptions import ASSUMPTIONS
from tests.docs.commands import every, root
from tests.docs.markdown import DOCS, ROOT
from tests.docs.python_reference import python_reference
from vastrun.launcher.cli import EXIT_CODES


def commands() -> str:
    """Return the page of all commands: what `--help` says of each."""
    parts = [
        "# Commands",
        "What `vastrun COMMAND --help` says of each. [Exit codes](#exit-codes) are at the end.",
    ]
    for context in (root(), *every()):
        parts += [f"## {context.command_path}", f"```text\n{context.get_help().strip()}\n```"]
    rows = "\n".join(f"| {code} | {meaning} |" for code, meaning in EXIT_CODES.items())
    parts += ["## Exit codes", f"| exit code | meaning |\n|---|---|\n{rows}"]
    return "\n\n".join(parts) + "\n"


def index() -> str:
    """Return the first page: the README, with links that start in `docs/`."""
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    return readme.replace("](docs/", "](").replace("[ARCHITECTURE.md](ARCHITECTURE.md)", "`ARCHITECTURE.md`")


def conformance() -> str:
    """Return the page that lists what vastrun assumes of Vast."""
    rows = "\n".join(f"| `{name}` | {row.text} | {row.assumed} |" for name, row in ASSUMPTIONS.items())
    intro = (
        "The rows that `python -m tests.conformance` compares with the live service "
        "([how](vast.md#does-vast-do-what-vastrun-assumes)). Those of `charge` are seen with `--settle`."
    )
    table = f"| row | of what | assumed |\n|---|---|---|\n{rows}"
    return f"# What vastrun assumes of Vast\n\n{intro}\n\n{table}\n"


def decisions() -> str:
    """Return the page that lists the records of decisions."""
    records = sorted((DOCS / "decisions").glob("[0-9]*.md"))
    lines = [f"- [{_title(record.read_text(encoding='utf-8'))}]({record.name})" for record in records]
    return "# Decisions\n\nChoices that are not obvious, with their reasons.\n\n" + "\n".join(lines) + "\n"


def _title(text: str) -> str:
    return text.partition("\n")[0].removeprefix("# ")


GENERATED: Mapping[str, Callable[[], str]] = {
    "index.md": index,
    "commands.md": commands,
    "python-reference.md": python_reference,
    "conformance.md": conformance,
    "decisions/index.md": decisions,
}
"""By the path below `docs/`, where none of them lies."""
