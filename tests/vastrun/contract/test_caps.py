"""Caps of the files that machine and launcher exchange, each at its exact limit and as the pages tell it."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from vastrun.contract import profiling
from vastrun.contract.data_files import path_fault
from vastrun.contract.job import JobBatch
from vastrun.contract.profiling import FileDigest, ProfileRequest, ProfileResponse
from vastrun.contract.records import RecordError, parse_json, read_as

PAGE = Path(__file__).parents[3] / "docs" / "profiling.md"
REQUEST: dict[str, Any] = {"id": "0123456789abcdef", "steps": 1}
DIGEST: dict[str, Any] = {"size": 1, "sha256": 64 * "a"}
RESPONSE: dict[str, Any] = {"id": REQUEST["id"], "step": 0, "trace": DIGEST, "operations": None, "fault": ""}


@pytest.mark.parametrize(
    ("kind", "valid", "field", "good", "bad"),
    [
        (ProfileRequest, REQUEST, "steps", [1, 100], [0, 101]),
        (ProfileRequest, REQUEST, "id", [16 * "f"], [15 * "f", 17 * "f", 16 * "g"]),
        (FileDigest, DIGEST, "size", [1, 256 << 20], [0, (256 << 20) + 1]),
        (FileDigest, DIGEST, "sha256", [64 * "0"], [63 * "0", 65 * "0", 64 * "x"]),
        (ProfileResponse, RESPONSE, "step", [0, 10**12], [-1, 10**12 + 1]),
    ],
)
def test_a_value_of_a_profile_is_taken_up_to_its_limits(
    kind: Any, valid: dict[str, Any], field: str, good: list[Any], bad: list[Any]
) -> None:
    for value in good:
        assert asdict(read_as(kind, valid | {field: value})) == valid | {field: value}
    for value in bad:
        with pytest.raises(RecordError, match=field):
            read_as(kind, valid | {field: value})


@pytest.mark.parametrize(("length", "kept"), [(300, 300 * "x"), (301, 150 * "x" + "…" + 150 * "x")])
def test_a_fault_is_a_text_of_which_300_characters_are_kept(length: int, kept: str) -> None:
    found: ProfileResponse = read_as(ProfileResponse, RESPONSE | {"fault": length * "x"})
    assert found.fault == kept
    assert read_as(ProfileResponse, {"id": REQUEST["id"]}) == ProfileResponse(id=REQUEST["id"])


def test_the_largest_trace_is_as_the_page_tells() -> None:
    raw, compressed = profiling.MAX_RAW_TRACE_BYTES, profiling.MAX_TRACE_BYTES
    told = f"more than {raw / (1 << 30):g} GiB, or {compressed / (1 << 20):g} MiB compressed, is dropped"
    assert told in " ".join(PAGE.read_text(encoding="utf-8").split())
    assert profiling.trace_path(7).endswith("/trace-step-7.json.gz")
    assert profiling.operations_path(7).endswith("/operations-step-7.txt")
    assert profiling.memory_path(7).endswith("/memory-rank-7.pickle")


@pytest.mark.parametrize("mark", ["[],", "{},"])
def test_half_a_million_marks_of_json_are_parsed_and_one_more_is_refused(mark: str) -> None:
    # Each item has two marks; the list itself has one, and its last item needs no comma.
    text = "[" + mark * 249_999 + "[]" + "%s" + "]"
    assert len(parse_json(text % "")) == 250_000
    with pytest.raises(RecordError, match="more than 500000 values"):
        parse_json((text % ",1").encode())


@pytest.mark.parametrize(
    ("path", "fault"),
    [
        ("a/b.h5", None),
        ("a" * 255, None),
        ("a" * 256, "at most 255"),
        ("é" * 127, None),
        ("é" * 128, "at most 255"),
        ("a/", "at most 255"),
        ("a\\b", "at most 255"),
        ("a\tb", "at most 255"),
        ("", "inside"),
        (".", "inside"),
        ("/a", "inside"),
        ("a/.b", "inside"),
        ("../a", "inside"),
    ],
)
def test_a_path_of_data_is_printable_and_of_255_bytes_at_most(path: str, fault: str | None) -> None:
    found = path_fault(path)
    assert (found is None) if fault is None else (found is not None and fault in found)


def test_a_batch_is_a_tag_of_64_characters_without_commas() -> None:
    assert JobBatch(name="a,b" + 70 * "c").tag == "a b" + 61 * "c"
