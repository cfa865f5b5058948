"""What `--json` prints is as its published schema says, for every command that has it."""

import json
import shutil
from collections.abc import Iterator
from typing import Any

import click
import pytest
from jsonschema import Draft7Validator

from tests.documents import hold, name_of
from tests.fakebox import Training
from tests.launcher.desk import Desk
from tests.launcher.terminal import CRASH, HANG
from vastrun.launcher.cli import cli
from vastrun.launcher.cli.schema import DOCUMENTS, RESULT, document_schema
from vastrun.launcher.package_files import configs_dir

ROWS = (
    "attach {first}",
    "batch results widths",
    "batch resume widths",
    "batch retry widths",
    "batch status",
    "batch status widths",
    "batch submit {folder}/batch.yaml --dry-run",
    "batch watch widths",
    "bugreport {first} --output {folder}/bug.tar.gz",
    "config",
    "cost --by month",
    "cost reconcile",
    "cost",
    "diff {first} last",
    "doctor",
    "hold {folder}/job.yaml -y -d --out {folder}/held",
    "hosts",
    "image ls",
    "launch {folder}/job.yaml --dry-run",
    "launch {folder}/job.yaml -y --out {folder}/more",
    "logs {first} --tail 3",
    "plan {folder}/job.yaml --explain",
    "plan {folder}/job.yaml",
    "pull {going}",
    "reap --dry-run",
    "report last",
    "report widths",
    "resume {going}",
    "status",
    "status {going}",
    "launch {folder}/job.yaml -y -d --out {folder}/stopped",
    "stop last",
    "sweep {folder}/job.yaml train.seed=1,2 --usd 20 --dry-run",
    "wait {first}",
    "why {first}",
    "why {hung}",
    "why widths",
)
ELSEWHERE = {
    "export": "tests/launcher/commands/test_export.py",
    "rehearse": "tests/launcher/cli/test_rehearse.py",
    RESULT: "tests/launcher/ui/render/test_index.py",
}
"""Held to their schemas by other tests, which have what they need."""


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Desk:
    """A desk with runs: one crashed, one hung, a batch's of which one failed, and one that trains on."""
    desk = Desk(tmp_path_factory.mktemp("desk"), CRASH, HANG, CRASH, Training())
    shutil.copy(configs_dir() / "image.lock", desk.folder)
    desk.launch()
    desk.launch()
    desk.type("batch", "submit", str(desk.file), "-y", "--out", str(desk.folder / "batch"))
    desk.launch("--detach")
    return desk


@pytest.mark.slow
def test_every_command_prints_what_its_schema_says(desk: Desk) -> None:
    """One after the other: what a row does is there for those after it."""
    by_age = sorted(desk.ledger.runs(), key=lambda run: run.created_at)
    names = {"first": by_age[0].id, "hung": by_age[1].id, "going": by_age[-1].id, "folder": desk.folder}
    for row in ROWS:
        end = desk.type(*row.format(**names).split(), "--json")
        assert end.stdout, f"{row}: {end.stderr or end.exception}"


def test_no_command_with_json_is_left_out() -> None:
    """And no schema is published of what is no command."""
    assert set(DOCUMENTS) - {RESULT} == set(commands_with_json(cli, click.Context(cli), ()))
    assert {name_of(row.split()) for row in ROWS} | set(ELSEWHERE) == set(DOCUMENTS)


def commands_with_json(command: click.Command, ctx: click.Context, words: tuple[str, ...]) -> Iterator[str]:
    """The names of their documents."""
    meant = command.make_context(words[-1], [], ctx, resilient_parsing=True).command if words else command
    if any("--json" in parameter.opts for parameter in meant.params):
        yield "-".join(words)
    if isinstance(command, click.Group):
        for name in command.list_commands(ctx):
            child = command.get_command(ctx, name)
            assert child is not None
            yield from commands_with_json(child, ctx, (*words, name))


@pytest.mark.parametrize("name", DOCUMENTS)
def test_every_object_of_a_schema_is_closed_and_has_all_of_its_keys(name: str) -> None:
    schema = document_schema(name)
    Draft7Validator.check_schema(schema)
    assert schema["title"] and schema["description"]
    for each in objects(schema):
        assert each["additionalProperties"] is False
        assert set(each["properties"]) == set(each["required"])


def objects(schema: Any) -> Iterator[dict[str, Any]]:
    """Every part of a schema that names keys."""
    if isinstance(schema, dict):
        if isinstance(schema.get("properties"), dict) and "required" in schema:
            yield schema
        schema = list(schema.values())
    for part in schema if isinstance(schema, list) else []:
        yield from objects(part)


def test_a_document_that_says_more_or_less_is_refused() -> None:
    assert "undeclared" in refused({"schema_version": 1, "file": "a", "bytes": 1, "undeclared": 1})
    assert "bytes" in refused({"schema_version": 1, "file": "a"})
    assert "schema_version" in refused({"schema_version": 2, "file": "a", "bytes": 1})


def refused(document: Any) -> str:
    with pytest.raises(AssertionError) as error:
        hold("report", document)
    return str(error.value)


def test_a_schema_is_printed_by_the_words_of_its_command(desk: Desk) -> None:
    printed = json.loads(desk.type("schema", "batch", "results").stdout)
    assert printed["title"] == "vastrun batch results --json"
    assert desk.type("schema").stdout.split("\n")[:3] == ["job", "batch", "attach"]
    unknown = desk.type("schema", "nothing")
    assert unknown.exit_code == 2
    assert "there is no schema for nothing" in unknown.stderr
