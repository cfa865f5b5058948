"""Caps of the files that machine and launcher exchange, each at its exact limit and as the pages tell it."""

import pytest

from vastrun.contract.data_files import path_fault
from vastrun.contract.job import JobBatch
from vastrun.contract.records import RecordError, parse_json


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
