"""`.env` files: lines of `NAME=value`, as Docker Compose and python-dotenv read them."""

from __future__ import annotations

import re

_ENTRY = re.compile(
    r"""^[ \t]*(?:export[ \t]+)?(?P<name>[A-Za-z_]\w*)[ \t]*=[ \t]*
    (?:(?P<quoted>'[^']*'|"(?:\\.|[^"\\])*")[ \t]*(?:\#[^\n]*)?$|(?P<bare>[^\n]*)$)""",
    re.MULTILINE | re.VERBOSE | re.DOTALL | re.ASCII,
)
_COMMENT = re.compile(r"(?:^|\s+)#.*")
_ESCAPE = re.compile(r"\\(.)", re.DOTALL)
_ESCAPED = {"n": "\n", "r": "\r", "t": "\t"}


def value_in(text: str, name: str) -> str | None:
    """Return the last value that the file gives a variable; None where it gives none.

    Between single quotes text stands for itself; between double quotes `\\n`, `\\t`, `\\"` and the like are
    escapes. Quoted text may go over several lines. Without quotes, a `#` after a space begins a comment.
    `$NAME` is not replaced. Raises ValueError when a quote is never closed, or text follows the closing one.
    """
    found = None
    for entry in _ENTRY.finditer(text.replace("\r\n", "\n")):
        if entry["name"] == name:
            found = entry
    if found is None:
        return None
    if (quoted := found["quoted"]) is not None:
        return quoted[1:-1] if quoted[0] == "'" else _ESCAPE.sub(_unescaped, quoted[1:-1])
    if found["bare"][:1] in ("'", '"'):
        raise ValueError(f"expected nothing after the closing {found['bare'][0]}, or it is never closed")
    return _COMMENT.sub("", found["bare"]).strip()


def _unescaped(escape: re.Match[str]) -> str:
    return _ESCAPED.get(escape[1], escape[1] if escape[1] in "\\\"'$`\n" else escape[0])
