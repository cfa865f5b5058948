"""Write the schemas that are published, and the parts of pages that come from the code: `make schemas`."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from tests.docs import written
from tests.document_schemas import DOCUMENTS, document_schema
from tests.file_schemas import batch_schema, catalog, job_schema

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "configs" / "schemas"
_MADE: Mapping[str, tuple[Callable[[Mapping[str, str]], dict[str, Any]], str]] = {
    "job": (job_schema, "job-file.md"),
    "batch": (batch_schema, "batch.md"),
}
"""Each schema of a file, with the page that says what its keys mean."""
CATALOG = "catalog"
"""The entries of the files' schemas in SchemaStore's catalog."""
NAMES = (*_MADE, CATALOG, *(f"output/{name}" for name in DOCUMENTS))


@cache
def made(name: str) -> str:
    """Return the text of a schema, or of the catalog, as it is shipped."""
    if name == CATALOG:
        schema = catalog()
    else:
        schema = _of_file(name) if name in _MADE else document_schema(name.removeprefix("output/"))
    return json.dumps(schema, indent=1, ensure_ascii=False) + "\n"


def _of_file(name: str) -> dict[str, Any]:
    make, page = _MADE[name]
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(.+?)` \| .+? \| .+? \| (.+?) \|$", text, re.MULTILINE)
    return make({key: _plain(meaning) for key, meaning in rows})


def _plain(meaning: str) -> str:
    """The meaning without Markdown's links, which an editor does not follow."""
    return re.sub(r"\[(.+?)\]\(.+?\)", r"\1", meaning)


if __name__ == "__main__":
    written.write()
    (FOLDER / "output").mkdir(exist_ok=True)
    for schema in NAMES:
        (FOLDER / f"{schema}.json").write_text(made(schema), encoding="utf-8")
