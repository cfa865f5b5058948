"""The schemas that editors read: as the types and the pages are, and of one mind with the loader."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft7Validator

from tests.launcher.config.job_files import BROKEN
from vastrun.launcher.config.job_loader import checked
from vastrun.launcher.config.json_schema import PAGES, file_schema
from vastrun.launcher.config.program_kinds import any_job_type
from vastrun.launcher.config.schema import NAME, Option, options
from vastrun.launcher.config.source import parse
from vastrun.launcher.config.yaml_reader import YamlReader, plain
from vastrun.launcher.core.batch import BatchSpec
from vastrun.launcher.package_files import page

ROOT = Path(__file__).parents[3]
JOB, BATCH = (file_schema(kind, page(PAGES[kind])) for kind in ("job", "batch"))
KEYS_OF_A_JOB = Draft7Validator({k: v for k, v in JOB.items() if k not in ("anyOf", "dependencies")})
KEYS_OF_A_BATCH = Draft7Validator({k: v for k, v in BATCH.items() if k != "oneOf"})
CONFIGS = sorted((ROOT / "configs").glob("*.yaml"))
EXAMPLES = sorted((ROOT / "examples").glob("*/job.yaml"))
CANDIDATES: tuple[Any, ...] = (
    None, True, -1, 0, 1, 2, 0.5, 1.5, 200, 10**6, 2**64, "", "a", "text", [], ["text"], ["text", 1],
    [0.5], [0.5, 0.6], [1, 2, 3], {}, {"text": 1}, {"text": {}}, [{}], [[1]],
)  # fmt: skip


def accepts(schema: Draft7Validator, document: Any) -> bool:
    return bool(schema.is_valid(document))


@pytest.mark.parametrize("schema", [JOB, BATCH], ids=["job", "batch"])
def test_every_key_has_a_description_and_every_section_is_closed(schema: dict[str, Any]) -> None:
    Draft7Validator.check_schema(schema)
    assert schema["title"] and schema["description"]
    for section in sections(schema):
        assert section["additionalProperties"] is False
        assert all("description" in key for key in section["properties"].values())


def sections(schema: Any) -> Iterator[dict[str, Any]]:
    """Every part of a schema that names keys, but for those of a mapping, which are values."""
    if isinstance(schema, dict):
        if "properties" in schema and "enum" not in schema:
            yield schema
        schema = list(schema.values())
    for part in schema if isinstance(schema, list) else []:
        yield from sections(part)


@pytest.mark.parametrize("path", [*CONFIGS, *EXAMPLES], ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_every_example_is_accepted(path: Path) -> None:
    assert accepts(Draft7Validator(JOB), plain(parse(path.read_text(encoding="utf-8"), path.name)))


def test_the_batch_file_of_the_page_is_accepted() -> None:
    text = (ROOT / "docs" / "batch.md").read_text(encoding="utf-8")
    block = text.partition("```yaml\n")[2].partition("```")[0]
    assert accepts(Draft7Validator(BATCH), plain(parse(block, "batch.md")))


@pytest.mark.parametrize("name", ["command", "empty", "machine", "names", "values"])
def test_a_broken_file_is_refused_by_both(name: str) -> None:
    path = next(path for path in BROKEN if path.stem == name)
    assert not accepts(Draft7Validator(JOB), plain(parse(path.read_text(encoding="utf-8"), path.name)))


@pytest.mark.parametrize("option", list(options()), ids=lambda option: option.key)
def test_schema_and_loader_agree_on_every_value_of_a_key_of_a_job(option: Option) -> None:
    for candidate in CANDIDATES:
        document = with_value({"name": "x"}, option.key, candidate)
        assert accepts(KEYS_OF_A_JOB, document) == is_read(any_job_type(), document), candidate


@pytest.mark.parametrize("option", list(options(BatchSpec)), ids=lambda option: option.key)
def test_schema_and_loader_agree_on_every_value_of_a_key_of_a_batch(option: Option) -> None:
    for candidate in CANDIDATES:
        document = with_value({"name": "x", "job": "job.yaml"}, option.key, candidate)
        assert accepts(KEYS_OF_A_BATCH, document) == is_read(BatchSpec, document), candidate


def with_value(base: dict[str, Any], key: str, value: Any) -> dict[str, Any]:
    """The document with a value at a dotted key; a list on the way is written as its one entry."""
    document = at = dict(base)
    *above, last = key.replace("[]", "").replace(f".{NAME}.", ".refine.").split(".")
    for part in above:
        at[part] = at = dict(at.get(part, {}))
    at[last] = value
    return document


def is_read(kind: type, document: Any) -> bool:
    """Whether the loader finds no fault in the type of a value; what values mean together comes later."""
    reading = YamlReader(parse(json.dumps(document), "file"), kind)
    return checked(reading, kind) is not None and not reading.faults
