"""What a page of Markdown holds: links, anchors, code."""

import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = sorted([*ROOT.glob("*.md"), *DOCS.rglob("*.md")])

_FENCE = re.compile(
    r"^(?P<indent> *)```(?P<language>\w*).*?\n(?P<code>.*?)^(?P=indent)```", re.MULTILINE | re.DOTALL
)
_INDENTED = re.compile(r"(?:^\n|\A)((?:^ {4}\S.*\n)+)", re.MULTILINE)
_INLINE = re.compile(r"`([^`]+)`")
_LINK = re.compile(r"\]\(([^)\s]+)\)")
_HEADING = re.compile(r"^#+ +(.+?) *$", re.MULTILINE)


def blocks(text: str) -> Iterator[tuple[str, str]]:
    """Yield the language and the code of each block; of one that is only indented, no language."""
    for found in _FENCE.finditer(text):
        yield found["language"], re.sub(rf"^{found['indent']}", "", found["code"], flags=re.MULTILINE)
    yield from (("", code) for code in _INDENTED.findall(_FENCE.sub("", text)))


def inline(text: str) -> list[str]:
    """Return what stands between backticks in sentences."""
    return [" ".join(code.split()) for code in _INLINE.findall(_FENCE.sub("", text))]


def links(text: str) -> list[str]:
    """Return where the links of a page lead, but for those to other hosts."""
    targets = _LINK.findall(_INLINE.sub("", _FENCE.sub("", text)))
    return [target for target in targets if not re.match(r"[a-z]+:", target)]


def anchors(text: str) -> set[str]:
    """Return the anchors of a page's headings, as GitHub and the site make them."""
    headings = _HEADING.findall(_FENCE.sub("", text))
    return {
        re.sub(r"[^\w\- ]", "", re.sub(r"\]\(.+?\)", "", heading)).lower().replace(" ", "-")
        for heading in headings
    }
