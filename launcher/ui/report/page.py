"""A page: the frame around a report. It holds all that it needs, and its policy forbids any request."""

from __future__ import annotations

import hashlib
from base64 import b64encode
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from launcher import __version__
from launcher.gate.text import one_line
from launcher.ui.render.amounts import moment
from launcher.ui.report.markup import Content, Html, element, joined, own

_ASSETS = Path(__file__).parent / "assets"
UPLOT = "uplot.min.js"
STYLES = ("uplot.min.css", "report.css")
SCRIPTS = (UPLOT, "report.js")
_LINE = 300
"""Characters of a line that are shown of what a box says."""


def page(title: str, *sections: Content, made_at: float) -> str:
    """Write a whole page."""
    styles = own("\n".join(map(_asset, STYLES)))
    scripts = [own(_asset(name)) for name in SCRIPTS]
    head = joined(
        element("meta", charset="utf-8"),
        element("meta", http_equiv="Content-Security-Policy", content=_policy(styles, scripts)),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", name="color-scheme", content="light dark"),
        element("link", rel="icon", href="data:,"),
        element("title", title),
        element("style", styles),
    )
    footer = element("footer", f"Written by vastrun {__version__} on {moment(made_at)}. It asks no network.")
    body = joined(element("main", *sections), footer, *(element("script", script) for script in scripts))
    document = element("html", element("head", head), element("body", body), lang="en")
    return f"<!doctype html>\n{document}\n"


def page_bytes(*sections: Content) -> int:
    """Return how large a page of these sections is, about: all but its head, which is small."""
    assets = sum(len(_asset(name)) for name in (*STYLES, *SCRIPTS))
    return assets + len(joined(*sections).encode(errors="replace"))


def section(title: str, *content: Content, name: str) -> Html:
    """Return a part of the page under its title; empty without content."""
    if not any(content):
        return joined()
    heading = element("h2", title)
    return element("section", heading, *content, id=name)


def note(*content: Content) -> Html:
    """Return a line that explains."""
    return element("p", *content, class_="note")


def folded(title: str, *content: Content) -> Html:
    """Return what is shown when its title is clicked."""
    return element("details", element("summary", title), *content)


def scrolled(title: str, content: Html, *, class_: str = "scroll") -> Html:
    """Return what may be wider or higher than its place, and is then scrolled there, by keys too."""
    return element("div", content, class_=class_, tabindex=0, role="region", aria_label=title)


def figures(pairs: Sequence[tuple[str, str]]) -> Html:
    """Return the few numbers that matter most."""
    cells = [element("div", element("dt", name), element("dd", value)) for name, value in pairs if value]
    return element("dl", *cells, class_="figures")


def facts(pairs: Sequence[tuple[str, Content]]) -> Html:
    """Return names with their values; an empty value leaves its line out."""
    cells = [joined(element("dt", name), element("dd", value)) for name, value in pairs if value]
    return element("dl", *cells, class_="facts")


def shortened(text: str) -> str:
    """Return a text of the box on one line, as long as a page shows it."""
    text = one_line(text)
    return text if len(text) <= _LINE else text[: _LINE - 1] + "…"


def _policy(styles: str, scripts: list[Html]) -> str:
    """Allow these very styles and scripts, pictures within the page, and nothing else.

    By their hashes, so that even markup that was not escaped would run nothing.
    """
    allowed = " ".join(map(_source, scripts))
    return (
        f"default-src 'none'; script-src {allowed}; style-src {_source(styles)}; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )


def _source(content: str) -> str:
    return f"'sha256-{b64encode(hashlib.sha256(content.encode()).digest()).decode('ascii')}'"


@cache
def _asset(name: str) -> str:
    return (_ASSETS / name).read_text(encoding="utf-8")
