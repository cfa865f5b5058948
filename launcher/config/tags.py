"""Tags of a job: their valid form. They appear in tables, on the command line and in W&B."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

MAX_TAGS = 20
_TAG = re.compile(r"[^\W_](?:[\w .:/=+@-]{0,61}[\w.:/=+@-])?")
_EXPECTED = "expected up to 63 letters, digits, spaces and _-.:/=+@, the first a letter or digit"


def tag_fault(tag: str) -> str | None:
    """Return why the tag is invalid; None: it is valid. A comma would split it where tags are listed."""
    return None if _TAG.fullmatch(tag) and tag.isprintable() else f"{_EXPECTED}, got {tag!r}"


def tag_faults(tags: Sequence[str]) -> Iterator[tuple[int | None, str]]:
    """Yield the faults of a job's tags, each with the number of the tag; None: of all together."""
    if len(tags) > MAX_TAGS:
        yield None, f"expected at most {MAX_TAGS} tags, got {len(tags)}"
    for number, tag in enumerate(tags):
        if fault := tag_fault(tag):
            yield number, fault
        elif tag in tags[:number]:
            yield number, f"{tag} is given twice"
