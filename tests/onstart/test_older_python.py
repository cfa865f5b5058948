"""What Python 3.9 lacks for the records of the trainer."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, fields
from typing import Annotated, get_type_hints

import pytest

from vastrun.contract.records import Range, RecordError, read_as
from vastrun.onstart.older_python import with_keywords, with_unions

record = with_keywords(dataclass)


@record(frozen=True, kw_only=True)
class Sample:
    name: str | None = None
    parts: tuple[int | None, ...] = field(default=())
    size: Annotated[int, Range(0, 2**53)]


@pytest.mark.parametrize(
    ("annotation", "written"),
    [
        ("int", "int"),
        ("int | None", "Union[int, None]"),
        ("dict[str, int | None]", "dict[str, Union[int, None]]"),
        ("Annotated[int, Between(0, 2 ** 53)] | None", "Union[Annotated[int, Between(0, 2 ** 53)], None]"),
        ("int | str | None", "Union[Union[int, str], None]"),
    ],
)
def test_a_type_with_bars_is_written_as_a_union(annotation: str, written: str) -> None:
    assert with_unions(annotation) == written


def test_a_record_may_have_a_field_without_a_default_after_one_that_has() -> None:
    assert [one.name for one in fields(Sample)] == ["size", "name", "parts"]
    assert get_type_hints(Sample)["name"] == str | None


def test_such_a_record_is_read_and_its_types_and_ranges_are_checked() -> None:
    read = read_as(Sample, {"size": 3, "parts": [1, None]})
    assert asdict(read) == {"size": 3, "name": None, "parts": (1, None)}
    with pytest.raises(RecordError, match="parts\\[0\\]: expected a whole number"):
        read_as(Sample, {"size": 3, "parts": ["x"]})
    with pytest.raises(RecordError, match="size: expected at least 0"):
        read_as(Sample, {"size": -1})


def test_other_dataclasses_are_made_as_before() -> None:
    @record
    class Plain:
        first: int
        second: int = 2

    assert (Plain(1).first, Plain(1).second) == (1, 2)
