"""Records: values of any origin become nouns whose fields are what they say, or one clear error."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

import pytest

from vastrun.contract.records import FileName, MaxLength, Pattern, Range, RecordError, Text, read_json


@dataclass(frozen=True, kw_only=True)
class Inner:
    rank: Annotated[int, Range(0, 100)]
    share: float = 0.0


@dataclass(frozen=True, kw_only=True)
class Outer:
    step: int = 0
    seconds: float | None = None
    size: Annotated[int, Range(1, 9)] | Literal["auto"] = 1
    whole: bool = False
    kind: Literal["train", "command", 0] = "train"
    name: Annotated[str, MaxLength(5)] = ""
    sha256: Annotated[str, Pattern("[0-9a-f]{4}")] = "0000"
    detail: Annotated[str, Text(10)] = ""
    path: Annotated[str, FileName()] = "x"
    inner: Annotated[tuple[Inner, ...], MaxLength(2)] = ()
    scores: Mapping[str, float] = field(default_factory=dict)


def read(text: str) -> Outer:
    found: Outer = read_json(Outer, text)
    return found


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ('{"step": 9007199254740993}', "step: expected a whole number, not 9007199254740993"),
        ('{"step": true}', "step: expected a whole number, not true"),
        ('{"step": 1.0}', "step: expected a whole number, not 1.0"),
        ('{"step": null}', "step: expected a whole number, not null"),
        ('{"step": "1"}', 'step: expected a whole number, not "1"'),
        ('{"step": [1]}', "step: expected a whole number, not a list"),
        (f'{{"step": {"9" * 4000}}}', f"step: expected a whole number, not {'9' * 37}..."),
        ('{"size": "all"}', 'size: expected a whole number, not "all"'),
        ('{"size": 0}', "size: expected at least 1, not 0"),
        ('{"size": null}', "size: expected a whole number, not null"),
        ('{"seconds": 1e999}', "seconds: expected a number, not Infinity"),
        ('{"seconds": NaN}', "NaN is not a JSON number"),
        ('{"seconds": false}', "seconds: expected a number, not false"),
        ('{"whole": "no"}', 'whole: expected true or false, not "no"'),
        ('{"whole": 1}', "whole: expected true or false, not 1"),
        ('{"kind": false}', "kind: expected one of train, command, 0, not false"),
        ('{"kind": []}', "kind: expected one of train, command, 0, not a list"),
        ('{"name": "\\ud800"}', 'name: expected a string, not "\\ud800"'),
        ('{"name": "abcdef"}', 'name: expected a length of at most 5, not "abcdef"'),
        ('{"sha256": "../x"}', 'sha256: expected a text like [0-9a-f]{4}, not "../x"'),
        ('{"sha256": "0000\\n"}', 'sha256: expected a text like [0-9a-f]{4}, not "0000\\n"'),
        ('{"detail": {}}', "detail: expected a string, not an object"),
        ('{"path": ""}', 'path: expected the name of a file, not ""'),
        ('{"path": "\\ud800"}', 'path: expected the name of a file, not "\\ud800"'),
        ('{"inner": [{"rank": 1}, {"rank": -1}]}', "inner[1].rank: expected at least 0, not -1"),
        ('{"inner": [{"rank": 101}]}', "inner[0].rank: expected at most 100, not 101"),
        ('{"inner": [{}]}', "inner[0].rank: is missing"),
        ('{"inner": [3]}', "inner[0]: expected an object, not 3"),
        ('{"inner": "ab"}', 'inner: expected a list, not "ab"'),
        ('{"inner": [{"rank": 1}, {"rank": 1}, {"rank": 1}]}', "inner: expected a length of at most 2, not a list"),  # noqa: E501
        ('{"scores": {"nrmse": "low"}}', 'scores.nrmse: expected a number, not "low"'),
        ('{"scores": []}', "scores: expected an object, not a list"),
        ("[]", "expected an object, not a list"),
        ("3", "expected an object, not 3"),
    ],
)  # fmt: skip
def test_a_value_of_a_wrong_type_range_or_encoding_is_refused_by_its_place(text: str, fault: str) -> None:
    with pytest.raises(RecordError) as refused:
        read(text)
    assert str(refused.value) == fault


@pytest.mark.parametrize(
    "text",
    ["", "{", "\0", "[" * 100_000, f'{{"step": {"9" * 6000}}}', "[" + "[]," * 300_000 + "[]]"],
    ids=["nothing", "half", "zero", "deep", "digits", "many"],
)
def test_a_text_that_is_no_json_or_too_much_of_it_is_refused(text: str) -> None:
    with pytest.raises(RecordError) as refused:
        read(text)
    assert len(str(refused.value)) < 200


def test_bytes_that_are_no_text_are_refused() -> None:
    with pytest.raises(RecordError, match="not JSON"):
        read_json(Outer, b'{"detail": "\xff"}')


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ('{"detail": "\\ud800 here"}', Outer(detail="? here")),
        ('{"detail": "12345678901234567890"}', Outer(detail="12345…67890")),
        ('{"path": "a\\udcff"}', Outer(path="a\udcff")),
        ('{"seconds": 3}', Outer(seconds=3.0)),
        ('{"step": 9007199254740992}', Outer(step=2**53)),
        ('{"step": -9007199254740992}', Outer(step=-(2**53))),
        ('{"seconds": 1.7976931348623157e308}', Outer(seconds=1.7976931348623157e308)),
        ('{"size": 1}', Outer(size=1)),
        ('{"size": 9}', Outer(size=9)),
        ('{"name": "abcde"}', Outer(name="abcde")),
        ('{"detail": "1234567890"}', Outer(detail="1234567890")),
        ('{"inner": [{"rank": 0}, {"rank": 100}]}', Outer(inner=(Inner(rank=0), Inner(rank=100)))),
        ('{"size": "auto"}', Outer(size="auto")),
        ('{"size": 4}', Outer(size=4)),
        ('{"seconds": null}', Outer()),
        ('{"kind": 0, "unheard_of": [1]}', Outer(kind=0)),
        ('{"inner": {"rank": 7}}', Outer(inner=(Inner(rank=7),))),
        ('{"scores": {"a": 1}}', Outer(scores={"a": 1.0})),
    ],
)
def test_what_fits_is_kept_and_words_for_people_are_made_to_fit(text: str, kept: Any) -> None:
    assert read(text) == kept
