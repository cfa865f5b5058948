"""The page on the job file says what the types say."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import yaml

from vastrun.launcher.config.job_loader import load_job
from vastrun.launcher.config.schema import options

PAGE = (Path(__file__).parents[3] / "docs" / "job-file.md").read_text(encoding="utf-8")
ROWS = {
    row[0]: row[1:] for row in re.findall(r"^\| `(.+?)` \| (.+?) \| (.+?) \| (.+?) \|$", PAGE, re.MULTILINE)
}
OPTIONS = {option.key: option for option in options() if option.expected != "a section"}


def test_every_key_has_one_row_and_no_other_is_there() -> None:
    named = Counter(re.findall(r"^\| `(.+?)` \| .+? \| .+? \| .+? \|$", PAGE, re.MULTILINE))
    assert named == Counter(list(OPTIONS))


def test_the_meaning_of_a_row_begins_as_a_sentence() -> None:
    meanings = {key: row[-1] for key, row in ROWS.items()}
    assert [key for key, meaning in meanings.items() if not (meaning[0].isupper() or meaning[0] == "`")] == []


def test_the_examples_of_the_page_are_sound() -> None:
    smallest, *parts = re.findall(r"```yaml\n(.+?)```", PAGE, re.DOTALL)
    load_job(smallest, "page")
    for part in parts:
        assert yaml.safe_load(part)
        load_job(smallest + part, "page")
