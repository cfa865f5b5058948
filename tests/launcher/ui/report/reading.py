"""A page as a parser reads it, and what no page may hold, whatever a box says."""

import base64
import json
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

from vastrun.launcher.ui.report import page

MAX_BYTES = 400_000
"""Of the page of one run."""
ASSETS = Path(page.__file__).parent / "assets"
VOID = {"br", "img", "input", "link", "meta"}
TAGS = {
    *("html", "head", "meta", "link", "title", "style", "script", "body", "main", "header", "footer"),
    *("section", "h1", "h2", "h3", "p", "div", "span", "b", "strong", "small", "code", "pre", "mark", "a"),
    *("button", "dl", "dt", "dd", "ul", "li", "table", "thead", "tbody", "tr", "th", "td", "details"),
    *("summary", "figure", "figcaption", "img", "noscript", "svg", "g", "rect", "line", "polyline", "circle"),
    "text",
}
ATTRIBUTES = {
    *("lang", "charset", "http-equiv", "content", "name", "rel", "href", "id", "class", "type", "role"),
    *("scope", "aria-label", "aria-labelledby", "aria-hidden", "aria-sort", "tabindex", "src", "alt"),
    *("width", "height", "data-chart", "data-point", "data-sort", "data-told", "viewbox"),
    *("preserveaspectratio", "x", "y", "x1", "x2", "y1", "y2", "cx", "cy", "r", "rx", "points"),
    *("text-anchor", "transform"),
}


@dataclass
class ReadPage(HTMLParser):
    """What is in a page. Raises AssertionError where tags are not closed in their order."""

    text: str
    tags: list[tuple[str, dict[str, str | None]]] = field(default_factory=list)
    scripts: list[str] = field(default_factory=list)
    """Those that run."""
    styles: list[str] = field(default_factory=list)
    data: dict[str, Any] = field(default_factory=dict)
    """Of the blocks that do not, by their ids."""
    shown: list[str] = field(default_factory=list)
    """The texts."""

    def __post_init__(self) -> None:
        super().__init__()
        self._open: list[tuple[str, dict[str, str | None]]] = []
        self.feed(self.text)
        self.close()
        assert not self._open, self._open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self._open.append((tag, dict(attrs)))

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop()[0] == tag, tag

    def handle_data(self, data: str) -> None:
        tag, attributes = self._open[-1] if self._open else ("", {})
        if tag == "script" and attributes.get("type") == "application/json":
            name = attributes["id"]
            assert name is not None
            self.data[name] = json.loads(data)
        elif tag == "script":
            self.scripts.append(data)
        elif tag == "style":
            self.styles.append(data)
        elif data.strip():
            self.shown.append(data)

    def of(self, tag: str) -> list[dict[str, str | None]]:
        """The attributes of each such tag."""
        return [attributes for name, attributes in self.tags if name == tag]


SERVED_TAGS = {"nav", "form", "input", "label"}
SERVED_ATTRIBUTES = {"aria-live", "data-refresh", "for", "maxlength", "value"}


def assert_sound(text: str, most_bytes: int = MAX_BYTES, *, served: bool = False) -> ReadPage:
    """It is whole, runs our scripts only, asks nobody, and holds nothing that a page has no use for.

    `served`: it is one of `vastrun ui`, and may ask that for itself.
    """
    assert len(text.encode()) < most_bytes
    assert not {c for c in set(text) if not (c.isprintable() or c in "\n\t")}
    read = ReadPage(text)
    tags, attributes_known = (
        (TAGS | SERVED_TAGS, ATTRIBUTES | SERVED_ATTRIBUTES) if served else (TAGS, ATTRIBUTES)
    )
    assert {tag for tag, _ in read.tags} <= tags
    assert {name for _, attributes in read.tags for name in attributes} <= attributes_known
    is_live = served and any("data-refresh" in attributes for attributes in read.of("body"))
    scripts = (page.LIVE, *page.SCRIPTS) if is_live else page.SCRIPTS
    assert read.scripts == [(ASSETS / name).read_text() for name in scripts]
    assert read.styles == ["\n".join((ASSETS / name).read_text() for name in page.STYLES)]
    for attributes in read.of("img"):
        kind, _, content = (attributes["src"] or "").partition(",")
        assert kind == "data:image/png;base64"
        assert base64.b64decode(content).startswith(b"\x89PNG")
    for tag in ("a", "link"):
        for attributes in read.of(tag):
            assert ":" not in (attributes["href"] or "").removeprefix("data:,")
    policy = next(a["content"] for a in read.of("meta") if a.get("http-equiv") == "Content-Security-Policy")
    assert policy is not None
    assert policy.startswith("default-src 'none'; ")
    assert "unsafe" not in policy and "http" not in policy
    assert f"connect-src {'self' if is_live else 'none'}" in policy.replace("'", "")
    return read
