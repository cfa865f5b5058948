"""Page: the HTML document around a report, self-contained, with a policy that forbids any request; and markup
from text that may be hostile, which only this module escapes.
"""

from __future__ import annotations

import hashlib
import json
from base64 import b64encode
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from html import escape
from pathlib import Path
from typing import Any

from vastrun.launcher import __version__
from vastrun.launcher.core import Verdict
from vastrun.launcher.gate.pictures import Picture
from vastrun.launcher.gate.text import one_line, printable
from vastrun.launcher.ui.render.amounts import moment

UPLOT = "uplot.min.js"
STYLES = ("uplot.min.css", "report.css")
LIVE = "live.js"
"""Script that refreshes a page; it comes first, because it must see the parts before they are drawn."""
SCRIPTS = (UPLOT, "report.js")
_MAX_CHARACTERS = 300
"""Maximum characters of a line from a machine."""
_EMPTY = frozenset({"br", "circle", "hr", "img", "input", "line", "link", "meta", "path", "polyline", "rect"})
"""Elements without a closing tag in HTML, and self-closing ones of SVG."""
_SVG = frozenset({"circle", "line", "path", "polyline", "rect"})


@dataclass(frozen=True, kw_only=True)
class Frame:
    """Frame of a page in `vastrun ui`."""

    home: str = ""
    """Address of the list of all runs; empty for the list itself."""
    refresh_s: float | None
    """Seconds between two refreshes; None for a final page."""
    has_form: bool = False
    """True if the page has a form, which submits to this server."""


def page(title: str, *sections: Content, made_at: float, frame: Frame | None = None) -> str:
    """Write a complete HTML document. `frame`: frame of a page on the web server; None for a file."""
    # Assets of vastrun are not escaped.
    styles = Html("\n".join(map(_asset, STYLES)))
    refresh_s = None if frame is None else frame.refresh_s
    names = (LIVE, *SCRIPTS) if refresh_s else SCRIPTS
    scripts = [Html(_asset(name)) for name in names]
    policy = _policy(styles, scripts, connects=bool(refresh_s), submits=frame is not None and frame.has_form)
    head = joined(
        element("meta", charset="utf-8"),
        element("meta", http_equiv="Content-Security-Policy", content=policy),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", name="color-scheme", content="light dark"),
        element("link", rel="icon", href="data:,"),
        element("title", title),
        element("style", styles),
        # Without scripts, the browser reloads the whole page.
        element("noscript", element("meta", http_equiv="refresh", content=refresh_s)) if refresh_s else "",
    )
    written = f"Written by vastrun {__version__} on {moment(made_at)}."
    network = "needs no network" if frame is None else "connects only to vastrun on this computer"
    footer = element("footer", f"{written} This page {network}.")
    # Nested, so that no element stays in memory beside the next: with 10,000 points each takes 15 MB.
    document = element(
        "html",
        element("head", head),
        element(
            "body",
            element("main", "" if frame is None else _bar(frame, made_at), *sections),
            footer,
            *(element("script", script) for script in scripts),
            data_refresh=refresh_s,
        ),
        lang="en",
    )
    return f"<!doctype html>\n{document}\n"


def _bar(frame: Frame, made_at: float) -> Html:
    """Write the link to the list, and whether the page is current or final."""
    back = element("a", "← all runs", href=frame.home) if frame.home else ""
    words = "final" if frame.refresh_s is None else f"as of {moment(made_at)}"
    sign = element("span", words, class_="live", role="status", aria_live="off")
    return element("nav", back, sign, id="bar", aria_label="Page")


def page_bytes(*sections: Content) -> int:
    """Return the approximate size of a page with these sections, in bytes."""
    assets = sum(len(_asset(name)) for name in (*STYLES, *SCRIPTS))
    return assets + len(joined(*sections).encode(errors="replace"))


def section(title: str, *content: Content, name: str) -> Html:
    """Write a section with its title; empty without content."""
    if not any(content):
        return joined()
    return element("section", element("h2", title), *content, id=name)


def note(*content: Content) -> Html:
    """Write an explanatory line."""
    return element("p", *content, class_="note")


def folded(title: str, *content: Content) -> Html:
    """Write content that a click on its title unfolds."""
    return element("details", element("summary", title), *content)


def scrolled(title: str, content: Html, *, class_: str = "scroll") -> Html:
    """Write content that scrolls if it is too large, also by keyboard."""
    return element("div", content, class_=class_, tabindex=0, role="region", aria_label=title)


def table(
    title: str,
    columns: Sequence[Content],
    rows: Sequence[Html | Sequence[Content]],
    *,
    classes: Sequence[str | None] = (),
    right: Collection[int] = (),
    sorts: bool = False,
    order: tuple[int, str] | None = None,
    class_: str | None = None,
    scroll: str = "scroll",
) -> Html:
    """Write a table that scrolls. `right`: numbers of right-aligned columns.

    `classes`: of the cells of rows that are given as contents; None: the cell is the name of its row.
    `sorts`: a click on a column's name sorts by it; `order`: the column by which the rows are in order, and
    that order.
    """
    header = (
        element(
            "th",
            element("button", name, type="button") if sorts else name,
            scope="col",
            class_="num" if number in right else None,
            aria_sort=order[1] if order is not None and order[0] == number else None,
        )
        for number, name in enumerate(columns)
    )
    body = [row if isinstance(row, Html) else element("tr", *map(_cell, row, classes)) for row in rows]
    head = element("thead", element("tr", *header))
    return scrolled(title, element("table", head, element("tbody", *body), class_=class_), class_=scroll)


def _cell(content: Content, class_: str | None) -> Html:
    if class_ is None:
        return element("th", content, scope="row")
    return element("td", content, class_=class_ or None)


def figures(pairs: Sequence[tuple[str, str]], class_: str = "figures") -> Html:
    """Write figures with their names; empty ones are left out."""
    cells = [element("div", element("dt", name), element("dd", value)) for name, value in pairs if value]
    return element("dl", *cells, class_=class_)


def facts(pairs: Sequence[tuple[str, Content]]) -> Html:
    """Write names with their values; empty values are left out."""
    cells = [joined(element("dt", name), element("dd", value)) for name, value in pairs if value]
    return element("dl", *cells, class_="facts")


def shortened(text: str) -> str:
    """Cut a machine's text to one line of the length that a page shows."""
    text = one_line(text)
    return text if len(text) <= _MAX_CHARACTERS else text[: _MAX_CHARACTERS - 1] + "…"


def _policy(styles: str, scripts: list[Html], *, connects: bool, submits: bool) -> str:
    """Return a policy that allows only these styles and scripts, and inline pictures.

    `connects`, `submits`: the script or the form may send requests to the page's own server. Scripts are
    allowed by their hashes, so that even unescaped markup could not run code.
    """
    allowed = " ".join(map(_source, scripts))
    sources = {True: "'self'", False: "'none'"}
    return (
        f"default-src 'none'; script-src {allowed}; style-src {_source(styles)}; img-src data:; "
        f"connect-src {sources[connects]}; base-uri 'none'; form-action {sources[submits]}"
    )


def _source(content: str) -> str:
    return f"'sha256-{b64encode(hashlib.sha256(content.encode()).digest()).decode('ascii')}'"


@cache
def _asset(name: str) -> str:
    return (Path(__file__).parent / "assets" / name).read_text(encoding="utf-8")


TONES: Mapping[Verdict | None, str] = {
    Verdict.SUCCEEDED: "good",
    Verdict.FAILED: "bad",
    Verdict.HUNG: "bad",
    Verdict.LOST: "bad",
    Verdict.OUTPUTS_LOST: "bad",
    Verdict.UNKNOWN: "bad",
    Verdict.NO_OFFER: "warn",
    Verdict.LIMIT: "warn",
    Verdict.PREEMPTED: "warn",
    Verdict.STOPPED: "calm",
    Verdict.PRUNED: "calm",
    None: "calm",
}
"""CSS class of a verdict; None for an open run."""


def badge(verdict: Verdict | None, words: str) -> Html:
    """Write a verdict or a state as a badge."""
    return element("span", words, class_=f"badge {TONES[verdict]}")


class Html(str):
    """Safe markup, made in this module only; a plain `str` is text to escape."""

    __slots__ = ()


Content = Html | str | int | None
Attribute = str | int | float | bool | None


def text(value: str) -> Html:
    """Escape text of any origin, without control characters."""
    return Html(escape(printable(value)))


def element(tag: str, *content: Content, **attributes: Attribute) -> Html:
    """Return an element. Names of attributes: `class_` is `class`, `data_run` is `data-run`.

    An attribute of None or False is left out; one of True has no value.
    """
    opening = "".join(_attribute(name, value) for name, value in attributes.items())
    if tag in _EMPTY:
        return Html(f"<{tag}{opening}{'/' if tag in _SVG else ''}>")
    return Html(f"<{tag}{opening}>{joined(*content)}</{tag}>")


def joined(*content: Content) -> Html:
    """Concatenate the parts, and escape plain text."""
    shown = (part for part in content if part is not None)
    return Html("".join(part if isinstance(part, Html) else text(str(part)) for part in shown))


def data_block(name: str, value: Any) -> Html:
    """Return a value as JSON for the page's own script. Raises ValueError for a number that is not finite.

    It contains no `<`, so that nothing can end the block, and only ASCII, because of U+2028.
    """
    content = json.dumps(_printable(value), allow_nan=False, separators=(",", ":"))
    for character, instead in {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026"}.items():
        content = content.replace(character, instead)
    return Html(f'<script type="application/json"{_attribute("id", name)}>{content}</script>')


def image(picture: Picture, name: str) -> Html:
    """Return a validated picture as an inline image."""
    source = f"data:image/png;base64,{b64encode(picture.png).decode('ascii')}"
    return element("img", src=source, alt=name, width=picture.width, height=picture.height)


def _attribute(name: str, value: Attribute) -> str:
    if value is None or value is False:
        return ""
    name = name.rstrip("_").replace("_", "-")
    return f" {name}" if value is True else f' {name}="{escape(printable(str(value)))}"'


def _printable(value: Any) -> Any:
    if isinstance(value, str):
        return printable(value)
    if isinstance(value, dict):
        return {printable(str(key)): _printable(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_printable(each) for each in value]
    return value
