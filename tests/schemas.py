"""Write the schemas to build/schemas, and the parts of pages that come from the code: `make schemas`."""

from collections.abc import Iterator
from pathlib import Path

from tests.docs import written
from vastrun.launcher.cli.schema import DOCUMENTS, document_schema
from vastrun.launcher.config.json_schema import PAGES, file_schema, to_text
from vastrun.launcher.package_files import page

ROOT = Path(__file__).parents[1]


def published() -> Iterator[tuple[str, str]]:
    """Yield each schema that is published with the documentation: the name of its file, and its text."""
    for kind in PAGES:
        yield f"schemas/{kind}.json", to_text(file_schema(kind, page(PAGES[kind])))
    for name in DOCUMENTS:
        yield f"schemas/output/{name}.json", to_text(document_schema(name))


if __name__ == "__main__":
    written.write()
    for name, text in published():
        (ROOT / "build" / name).parent.mkdir(parents=True, exist_ok=True)
        (ROOT / "build" / name).write_text(text, encoding="utf-8")
