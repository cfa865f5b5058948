"""Write the schemas that editors read, and the parts of pages that come from the code: `make schemas`."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from launcher.config.json_schema import batch_schema, job_schema
from tests.docs import written

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "configs" / "schemas"
_MADE: Mapping[str, tuple[Callable[[Mapping[str, str]], dict[str, Any]], str]] = {
    "job": (job_schema, "job-file.md"),
    "batch": (batch_schema, "batch.md"),
}
"""Each schema, with the page that says what its keys mean."""


def made(name: str) -> str:
    """Return the text of a schema, as it is shipped."""
    make, page = _MADE[name]
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(.+?)` \| .+? \| .+? \| (.+?) \|$", text, re.MULTILINE)
    return (
        json.dumps(make({key: _plain(meaning) for key, meaning in rows}), indent=1, ensure_ascii=False) + "\n"
    )


def _plain(meaning: str) -> str:
    """The meaning without Markdown's links, which an editor does not follow."""
    return re.sub(r"\[(.+?)\]\(.+?\)", r"\1", meaning)


if __name__ == "__main__":
    written.write()
    for schema in _MADE:
        (FOLDER / f"{schema}.json").write_text(made(schema), encoding="utf-8")
