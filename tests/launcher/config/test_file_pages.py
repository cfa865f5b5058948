"""The pages on job files and batch files say what the types say."""

import re

import pytest
import yaml

from tests.docs.markdown import DOCS
from vastrun.launcher.cli import EXIT_CODES
from vastrun.launcher.config.batch_file import load_batch
from vastrun.launcher.config.job_loader import load_job
from vastrun.launcher.config.program_kinds import any_job_type
from vastrun.launcher.config.schema import options
from vastrun.launcher.core.batch import BatchSpec

FILES = ((any_job_type(), "job-file.md"), (BatchSpec, "batch.md"))
PAGES = {kind: (DOCS / name).read_text() for kind, name in FILES}
JOB = "name: demo\nresources: {gpus: 0}\ntrain: {steps: 10, batch: 24}\n"


@pytest.mark.parametrize("kind", PAGES)
def test_every_key_has_one_row_whose_meaning_begins_as_a_sentence(kind: type) -> None:
    rows = re.findall(r"^\| `(.+?)` \| .+? \| .+? \| (.+?) \|$", PAGES[kind], re.MULTILINE)
    keys = [option.key for option in options(kind) if option.expected != "a section"]
    assert sorted(key for key, _ in rows) == sorted(keys)
    assert [key for key, meaning in rows if not (meaning[0].isupper() or meaning[0] == "`")] == []


def test_the_examples_of_the_page_on_job_files_are_sound() -> None:
    smallest, *parts = re.findall(r"```yaml\n(.+?)```", PAGES[any_job_type()], re.DOTALL)
    load_job(smallest, "page")
    for part in parts:
        assert yaml.safe_load(part)
        load_job(smallest + part, "page")


def test_the_examples_of_the_page_on_batch_files_are_sound() -> None:
    whole, kinds = re.findall(r"```yaml\n(.+?)```", PAGES[BatchSpec], re.DOTALL)

    def read(name: str) -> str:
        return "train.seed\n1\n" if name.endswith(".csv") else JOB

    assert len(load_batch(whole, "page", read, "/here").points) == 4
    for kind, points in yaml.safe_load(kinds).items():
        text = yaml.safe_dump({"name": "page", "job": "job.yaml", kind: points})
        assert load_batch(text, "page", read, "/here").points


def test_exit_codes_of_the_page_on_batch_files_are_those_of_the_help() -> None:
    found = re.findall(r"^\| (\d+) \|", PAGES[BatchSpec], re.MULTILINE)
    assert {int(code) for code in found} <= set(EXIT_CODES)
