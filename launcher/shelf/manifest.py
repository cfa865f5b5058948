"""What a box lists of its files. It may be a stranger's machine: it may name any path, any size."""

from __future__ import annotations

import json
import os
import re
from pathlib import PurePosixPath
from typing import Any

from trainer import layout
from trainer.outcome import FileSum
from trainer.records import read_as


def listed(text: bytes) -> tuple[list[FileSum], list[str]]:
    """The files of a manifest, and the paths in it that no honest box writes. Empty when there is none."""
    if not text:
        return [], []
    try:
        entries = [read_as(FileSum, entry) for entry in json.loads(text)["files"]]
    except (ValueError, KeyError, TypeError, AttributeError):
        return [], [layout.MANIFEST]
    files = [entry for entry in entries if _is_sound(entry)]
    return files, [repr(entry.path) for entry in entries if not _is_sound(entry)]


def _is_sound(file: Any) -> bool:
    if not isinstance(file.path, str) or not isinstance(file.size, int) or not isinstance(file.sha256, str):
        return False
    parts = PurePosixPath(file.path).parts
    named = bool(parts) and parts[0] != "/" and len(parts) < 100 and all(map(_is_name, parts))
    return named and file.size >= 0 and re.fullmatch(r"[0-9a-f]{64}", file.sha256) is not None


def _is_name(part: str) -> bool:
    try:
        return part != ".." and "\0" not in part and len(os.fsencode(part)) < 256
    except UnicodeEncodeError:
        return False
