"""The page on the job file says what the types say."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import MISSING, is_dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from launcher.config import load_job
from launcher.config.schema import Option, options

PAGE = (Path(__file__).parents[3] / "docs" / "job-file.md").read_text(encoding="utf-8")
ROWS = {
    row[0]: row[1:] for row in re.findall(r"^\| `(.+?)` \| (.+?) \| (.+?) \| (.+?) \|$", PAGE, re.MULTILINE)
}
OPTIONS = {option.key: option for option in options() if option.expected != "a section"}


def shown(default: Any) -> str:
    """A default as the page writes it."""
    if default is MISSING:
        return "-"
    if default in (None, (), {}):
        return "none"
    if is_dataclass(default):
        return "the defaults below"
    if isinstance(default, tuple) and is_dataclass(default[0]):
        return shown(default[0])
    if isinstance(default, tuple):
        return f"[{', '.join(map(shown, default))}]"
    if isinstance(default, bool):
        return str(default).lower()
    return f"{default:g}" if isinstance(default, float) else str(default)


def test_every_key_has_one_row_and_no_other_is_there() -> None:
    named = Counter(re.findall(r"^\| `(.+?)` \|", PAGE, re.MULTILINE))
    assert named == Counter(list(OPTIONS))


@pytest.mark.parametrize("option", OPTIONS.values(), ids=lambda option: option.key)
def test_a_row_gives_what_is_expected_and_the_default(option: Option) -> None:
    expected, default, meaning = ROWS[option.key]
    assert (expected, default) == (option.expected, shown(option.default))
    assert meaning[0].isupper() or meaning.startswith("`")


def test_the_examples_of_the_page_are_sound() -> None:
    smallest, *parts = re.findall(r"```yaml\n(.+?)```", PAGE, re.DOTALL)
    load_job(smallest, "page")
    for part in parts:
        assert yaml.safe_load(part)
        load_job(smallest + part, "page")
