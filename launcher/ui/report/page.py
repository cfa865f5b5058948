"""A page: the frame around a report. It holds all that it needs, and its policy forbids any request."""

from __future__ import annotations

import hashlib
from base64 import b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from vastrun.launcher import __version__
from vastrun.launcher.core import Verdict
from vastrun.launcher.gate.text import one_line
from vastrun.launcher.ui.render.amounts import moment
from vastrun.launcher.ui.report.markup import Content, Html, element, joined, own

_ASSETS = Path(__file__).parent / "assets"
UPLOT = "uplot.min.js"
STYLES = ("uplot.min.css", "report.css")
LIVE = "live.js"
"""Before the one that draws: it notes the parts as they came."""
SCRIPTS = (UPLOT, "report.js")
_LINE = 300
"""Characters of a line that are shown of what a box says."""


@dataclass(frozen=True, kw_only=True)
class Frame:
    """What is around a page that `vastrun ui` shows."""

    home: str = ""
    """The address of the list of all runs; empty: this is it."""
    refresh_s: float | None
    """It looks again after so many seconds; None: nothing changes any more."""
    has_form: bool = False
    """It asks its reader something, and then our own address for the answer."""


def page(title: str, *sections: Content, made_at: float, frame: Frame | None = None) -> str:
    """Write a whole page. `frame`: of one that is served; None: it stands for itself, as a file."""
    styles = own("\n".join(map(_asset, STYLES)))
    refresh_s = None if frame is None else frame.refresh_s
    names = (LIVE, *SCRIPTS) if refresh_s else SCRIPTS
    scripts = [own(_asset(name)) for name in names]
    policy = _policy(styles, scripts, connects=bool(refresh_s), submits=frame is not None and frame.has_form)
    head = joined(
        element("meta", charset="utf-8"),
        element("meta", http_equiv="Content-Security-Policy", content=policy),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", name="color-scheme", content="light dark"),
        element("link", rel="icon", href="data:,"),
        element("title", title),
        element("style", styles),
        # Without scripts it is loaded again as a whole.
        element("noscript", element("meta", http_equiv="refresh", content=refresh_s)) if refresh_s else "",
    )
    written = f"Written by vastrun {__version__} on {moment(made_at)}."
    asks = "no network" if frame is None else "nobody but vastrun on this computer"
    footer = element("footer", f"{written} It asks {asks}.")
    main = element("main", "" if frame is None else _bar(frame, made_at), *sections)
    body = joined(main, footer, *(element("script", script) for script in scripts))
    document = element(
        "html", element("head", head), element("body", body, data_refresh=refresh_s), lang="en"
    )
    return f"<!doctype html>\n{document}\n"


def _bar(frame: Frame, made_at: float) -> Html:
    """The way back to the list, and whether what is shown is as it is now."""
    back = element("a", "← all runs", href=frame.home) if frame.home else ""
    words = "final" if frame.refresh_s is None else f"as of {moment(made_at)}"
    sign = element("span", words, class_="live", role="status", aria_live="off")
    return element("nav", back, sign, id="bar", aria_label="Page")


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


def _policy(styles: str, scripts: list[Html], *, connects: bool, submits: bool) -> str:
    """Allow these very styles and scripts, pictures within the page, and nothing else.

    `connects`, `submits`: its script, or its form, may ask the address that the page came from.

    By their hashes, so that even markup that was not escaped would run nothing.
    """
    allowed = " ".join(map(_source, scripts))
    whom = {True: "'self'", False: "'none'"}
    return (
        f"default-src 'none'; script-src {allowed}; style-src {_source(styles)}; img-src data:; "
        f"connect-src {whom[connects]}; base-uri 'none'; form-action {whom[submits]}"
    )


def _source(content: str) -> str:
    return f"'sha256-{b64encode(hashlib.sha256(content.encode()).digest()).decode('ascii')}'"


@cache
def _asset(name: str) -> str:
    return (_ASSETS / name).read_text(encoding="utf-8")


TONES: Mapping[Verdict | None, str] = {
    Verdict.SUCCEEDED: "good",
    Verdict.FAILED: "bad",
    Verdict.HUNG: "bad",
    Verdict.LOST: "bad",
    Verdict.UNKNOWN: "bad",
    Verdict.NO_OFFER: "warn",
    Verdict.LIMIT: "warn",
    Verdict.PREEMPTED: "warn",
    Verdict.STOPPED: "calm",
    Verdict.PRUNED: "calm",
    None: "calm",
}
"""Class of how a verdict is shown; None: the run is open."""


def badge(verdict: Verdict | None, words: str) -> Html:
    """Return a verdict, or the state of what has none."""
    return element("span", words, class_=f"badge {TONES[verdict]}")
