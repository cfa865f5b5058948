"""The page on the batch file says what the types say."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import yaml

from vastrun.launcher.cli import EXIT_CODES
from vastrun.launcher.config.batch_file import load_batch
from vastrun.launcher.config.schema import options
from vastrun.launcher.core.batch import BatchSpec

PAGE = (Path(__file__).parents[3] / "docs" / "batch.md").read_text(encoding="utf-8")
ROWS = {
    row[0]: row[1:] for row in re.findall(r"^\| `(.+?)` \| (.+?) \| (.+?) \| (.+?) \|$", PAGE, re.MULTILINE)
}
OPTIONS = {option.key: option for option in options(BatchSpec) if option.expected != "a section"}
JOB = "name: demo\nresources: {gpus: 0}\ntrain: {steps: 10, batch: 24}\n"


def test_every_key_has_one_row_and_no_other_is_there() -> None:
    named = Counter(re.findall(r"^\| `(.+?)` \|", PAGE, re.MULTILINE))
    assert named == Counter(list(OPTIONS))


def test_the_meaning_of_a_row_begins_as_a_sentence() -> None:
    meanings = {key: row[-1] for key, row in ROWS.items()}
    assert [key for key, meaning in meanings.items() if not (meaning[0].isupper() or meaning[0] == "`")] == []


def test_the_examples_of_the_page_are_sound() -> None:
    whole, kinds = re.findall(r"```yaml\n(.+?)```", PAGE, re.DOTALL)

    def read(name: str) -> str:
        return "train.seed\n1\n" if name.endswith(".csv") else JOB

    assert len(load_batch(whole, "page", read, "/here").points) == 4
    for kind, points in yaml.safe_load(kinds).items():
        text = yaml.safe_dump({"name": "page", "job": "job.yaml", kind: points})
        assert load_batch(text, "page", read, "/here").points


def test_its_exit_codes_are_those_of_the_help() -> None:
    assert {int(code) for code in re.findall(r"^\| (\d+) \|", PAGE, re.MULTILINE)} <= set(EXIT_CODES)
