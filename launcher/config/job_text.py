"""Job text: adds keys to a job file, and leaves its order and comments as they are."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from yaml.nodes import MappingNode

from vastrun.launcher.config.source import parse


def with_keys(text: str, source: str, keys: Mapping[str, str | Sequence[str]]) -> str:
    """Return the text with these keys, which are missing there. Raises SyntaxFault.

    `section.key` is put into the section, and where that is missing it is written in its short form.
    """
    for key, value in keys.items():
        node, path = parse(text, source), key.split(".")
        is_inner = False
        for name, child in node.value if isinstance(node, MappingNode) else ():
            if name.value == path[0] and isinstance(child, MappingNode):
                node, is_inner = child, True
        written = f"{path[-1 if is_inner else 0]}: {json.dumps(value, ensure_ascii=False)}"
        if not isinstance(node, MappingNode) or not (is_inner or node.flow_style):
            text += ("" if text.endswith("\n") else "\n") + f"{written}\n"
        elif node.value:  # before its first key, in the same form
            at = node.value[0][0].start_mark
            joint = ", " if node.flow_style else "\n" + " " * at.column
            text = text[: at.index] + written + joint + text[at.index :]
    return text
