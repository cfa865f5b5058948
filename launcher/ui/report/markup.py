"""Markup: HTML that is made of text which may be hostile. The one place where it is escaped."""

from __future__ import annotations

import json
from base64 import b64encode
from html import escape
from typing import Any

from vastrun.launcher.gate.pictures import Picture
from vastrun.launcher.gate.text import printable

_EMPTY = frozenset({"br", "circle", "hr", "img", "input", "line", "link", "meta", "path", "polyline", "rect"})
"""Without a closing tag in HTML; those of SVG close themselves."""
_SVG = frozenset({"circle", "line", "path", "polyline", "rect"})
_FOR_SCRIPT = {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026"}


class Html(str):
    """Markup that is as it should be, made in this module only. A plain `str` is text to be escaped."""

    __slots__ = ()


Content = Html | str | int | None
Attribute = str | int | float | bool | None


def text(value: str) -> Html:
    """Return text of any origin as markup that shows it: nothing in it is a tag, an entity or a control."""
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
    """Return all of it, one after the other."""
    return Html("".join(part if isinstance(part, Html) else _shown(part) for part in content))


def data_block(name: str, value: Any) -> Html:
    """Return a value as JSON for the page's own script. Raises ValueError for a number that is not finite.

    It holds no `<`, so that nothing in it ends the block, and no character beyond ASCII, as U+2028.
    """
    content = json.dumps(_printable(value), allow_nan=False, separators=(",", ":"))
    for character, instead in _FOR_SCRIPT.items():
        content = content.replace(character, instead)
    return Html(f'<script type="application/json"{_attribute("id", name)}>{content}</script>')


def image(picture: Picture, name: str) -> Html:
    """Return a picture that passed the gate, within the page."""
    source = f"data:image/png;base64,{b64encode(picture.png).decode('ascii')}"
    return element("img", src=source, alt=name, width=picture.width, height=picture.height)


def own(markup: str) -> Html:
    """Take what ships with vastrun as it is: a style sheet, a script. Never anything else."""
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
