"""Markup: HTML from text that may be hostile. Only this module escapes it."""

from __future__ import annotations

import json
from base64 import b64encode
from html import escape
from typing import Any

from vastrun.launcher.gate.pictures import Picture
from vastrun.launcher.gate.text import printable

_EMPTY = frozenset({"br", "circle", "hr", "img", "input", "line", "link", "meta", "path", "polyline", "rect"})
"""Elements without a closing tag in HTML, and self-closing ones of SVG."""
_SVG = frozenset({"circle", "line", "path", "polyline", "rect"})
_FOR_SCRIPT = {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026"}


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
    return Html("".join(part if isinstance(part, Html) else _shown(part) for part in content))


def data_block(name: str, value: Any) -> Html:
    """Return a value as JSON for the page's own script. Raises ValueError for a number that is not finite.

    It contains no `<`, so that nothing can end the block, and only ASCII, because of U+2028.
    """
    content = json.dumps(_printable(value), allow_nan=False, separators=(",", ":"))
    for character, instead in _FOR_SCRIPT.items():
        content = content.replace(character, instead)
    return Html(f'<script type="application/json"{_attribute("id", name)}>{content}</script>')


def image(picture: Picture, name: str) -> Html:
    """Return a validated picture as an inline image."""
    source = f"data:image/png;base64,{b64encode(picture.png).decode('ascii')}"
    return element("img", src=source, alt=name, width=picture.width, height=picture.height)


def own(markup: str) -> Html:
    """Return an asset of vastrun without escaping: a style sheet or a script, never anything else."""
    return Html(markup)


def _attribute(name: str, value: Attribute) -> str:
    if value is None or value is False:
        return ""
    name = name.rstrip("_").replace("_", "-")
    return f" {name}" if value is True else f' {name}="{escape(printable(str(value)))}"'


def _shown(part: Content) -> str:
    return "" if part is None else text(str(part))


def _printable(value: Any) -> Any:
    if isinstance(value, str):
        return printable(value)
    if isinstance(value, dict):
        return {printable(str(key)): _printable(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_printable(each) for each in value]
    return value
