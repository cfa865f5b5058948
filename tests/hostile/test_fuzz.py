"""What nobody thought of: generated lies, of which `make fuzz` tries a hundred thousand.

Each reader of the gate answers with a noun in its ranges or refuses; each run comes to a good end.
"""

import json
import math
import os
import pickle
import random
import tempfile
from contextlib import suppress
from dataclasses import fields, is_dataclass
from pathlib import Path, PurePosixPath
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch.distributed.checkpoint.filesystem import _StorageInfo
from torch.distributed.checkpoint.metadata import (
    ChunkStorageMetadata,
    Metadata,
    MetadataIndex,
    TensorProperties,
    TensorStorageMetadata,
)

from tests.fakebox import Training
from tests.hostile.boxes import Since
from tests.hostile.lie import GOOD, STEERING, Lie
from tests.hostile.test_lies import ASKS, PHASES, Asks, assert_a_good_end, assert_no_crash, lying_terminal
from tests.launcher.providers.vast import rows
from vastrun.contract import layout
from vastrun.contract.records import RecordError, parse_json
from vastrun.launcher.core.errors import BoxError, UnreachableError
from vastrun.launcher.gate import caps
from vastrun.launcher.gate.box_reader import (
    parse_box_status,
    parse_evidence,
    parse_exit_code,
    parse_lease_state,
)
from vastrun.launcher.gate.manifest import parse_latest_checkpoint, parse_manifest
from vastrun.launcher.gate.text import one_line, printable
from vastrun.launcher.providers.vast.instance_row import InstanceRow
from vastrun.launcher.providers.vast.rows import OfferRow
from vastrun.launcher.ui.render.loglines import lines_of, parse_line, shown

FUZZ = int(os.environ.get("FUZZ", "0"))
"""How many examples the readers share; of runs a hundredth. Else fewer, and always the same."""
EXAMPLES, RUNS = (FUZZ // 8 + 1, FUZZ // 100) if FUZZ else (300, 300)
_COMMON = {
    "deadline": None,
    "database": None,
    "derandomize": not FUZZ,
    "print_blob": bool(FUZZ),
    "suppress_health_check": list(HealthCheck),
}
readers, whole_runs = settings(max_examples=EXAMPLES, **_COMMON), settings(max_examples=RUNS, **_COMMON)

ODD_TEXTS = st.sampled_from(
    [STEERING, "", "..", "/", "\0", "\ud800", "a" * 300, "run/.git/config", "1e999", "NaN", "\u2028", "١"]
)
ODD_NUMBERS = st.sampled_from(
    [2**31, 2**53, 2**63, 2**64, -1, 10**30, 1e308, 1e12, math.nan, math.inf, -math.inf, 0.5]
)
SCALARS = (
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=40) | ODD_TEXTS | ODD_NUMBERS
)
VALUES = st.recursive(
    SCALARS,
    lambda values: st.lists(values, max_size=4) | st.dictionaries(st.text(max_size=12), values, max_size=4),
    max_leaves=12,
)
PATHS = st.one_of(
    ODD_TEXTS,
    st.text(max_size=60),
    st.lists(
        st.sampled_from(
            [
                "run",
                "..",
                ".",
                "",
                ".GIT",
                ".incoming",
                ".pulling",
                ".vastrun",
                "a",
                "A",
                "outputs",
                "é",
                "\x1b[",
            ]
        ),
        max_size=6,
    ).map("/".join),
    st.sampled_from(sorted(caps.SMALL_FILES)),
)


def mutated(good: dict[str, Any]) -> st.SearchStrategy[dict[str, Any]]:
    """The document, with some of its values replaced, left out or made up."""
    keys = st.sampled_from(sorted(good)) | st.text(max_size=10)
    return st.tuples(
        st.dictionaries(keys, VALUES, max_size=4), st.sets(st.sampled_from(sorted(good)), max_size=2)
    ).map(lambda change: {key: value for key, value in (good | change[0]).items() if key not in change[1]})


def written(documents: st.SearchStrategy[Any]) -> st.SearchStrategy[bytes]:
    """As bytes, of which some may be others than they were."""

    def damage(document: Any, places: list[tuple[float, int]], cut: float) -> bytes:
        content = bytearray(json.dumps(document).encode())
        for place, byte in places:
            content[int(place * len(content)) % len(content)] = byte
        return bytes(content[: round(cut * len(content))])

    places = st.lists(st.tuples(st.floats(0, 1), st.integers(0, 255)), max_size=3)
    return st.builds(damage, documents, places, st.just(1.0) | st.floats(0, 1))


STATUS: dict[str, Any] = {
    "now": 1.8e9,
    "box": "running",
    "exit_code": None,
    "lease": "armed",
    "lease_ends_at": 1.8e9,
    "onstart_step": "50-train",
    "log_bytes": 1,
    "free_mb": 1,
    "received_mb": 1,
    "sent_mb": 1,
    "supervisor": {
        "step": 1,
        "steps": 10,
        "loss": 0.5,
        "ranks": [{"rank": 0, "pid": 1, "step": 1, "activity": "data"}],
    },
}
ENTRIES = mutated({"path": "run/outputs/a", "size": 4, "sha256": "0" * 64}) | st.builds(
    lambda path, size: {"path": path, "size": size, "sha256": "0" * 64}, PATHS, VALUES
)
MANIFESTS = mutated({"files": []}) | st.builds(
    lambda files: {"files": files}, st.lists(ENTRIES | VALUES, max_size=6)
)
STEPS = mutated({"step": "50-train", "exit_code": 0, "seconds": 1.0})
LATEST = mutated({"step": 8, "path": "step-000008"})
ANYTHING = st.binary(max_size=200) | written(VALUES)


@readers
@given(ANYTHING | written(mutated(STATUS)))
@pytest.mark.slow
def test_a_status_is_in_its_ranges_or_refused(printed: bytes) -> None:
    with suppress(BoxError):
        assert_sound(parse_box_status(printed.decode("utf-8", "replace")))


@readers
@given(ANYTHING | written(mutated(GOOD)), ANYTHING | written(STEPS), ANYTHING)
def test_evidence_is_in_its_ranges_or_none(outcome: bytes, steps: bytes, code: bytes) -> None:
    evidence = parse_evidence(outcome, steps, parse_exit_code(code))
    assert_sound(evidence)
    assert evidence.outcome is None or not evidence.nonsense


@readers
@given(ANYTHING | written(MANIFESTS), st.floats(0, 1e15))
def test_a_listed_file_has_a_place_of_its_own_below_the_outputs(manifest: bytes, disk_bytes: float) -> None:
    listing = parse_manifest(manifest, disk_bytes)
    places = [PurePosixPath(file.path) for file in listing.files]
    assert sum(file.size for file in listing.files) <= disk_bytes
    assert len(set(places)) == len(places)
    for place in places:
        assert not place.is_absolute()
        assert ".." not in place.parts
        assert not set(place.parents) & set(places)
        assert all(layout.should_download(part) for part in place.parts)
        assert len(os.fsencode(place)) <= caps.PATH_BYTES


@readers
@given(
    ANYTHING | written(LATEST),
    st.binary(max_size=100) | ODD_TEXTS.map(lambda text: text.encode("utf-8", "replace")),
)
def test_small_files_say_what_they_may_or_nothing(latest: bytes, state: bytes) -> None:
    assert PurePosixPath(parse_latest_checkpoint(latest) or "step").name == (
        parse_latest_checkpoint(latest) or "step"
    )
    assert parse_lease_state(b"state=" + state) in ("armed", "proving", "ending", "dead", "none", "not there")


@readers
@given(st.text() | st.lists(ODD_TEXTS | st.characters(), max_size=30).map("".join))
def test_what_is_shown_steers_no_terminal(text: str) -> None:
    assert all(c.isprintable() or c in "\n\t" for c in printable(text))
    assert "\n" not in one_line(text)
    for line in lines_of(text):
        assert shown(line).replace("\t", "").isprintable()
        assert_sound(parse_line(line))


@readers
@given(mutated(rows.offer()) | VALUES, mutated(rows.instance()) | VALUES)
def test_a_row_of_the_market_is_in_its_ranges_or_refused(offer: Any, instance: Any) -> None:
    read = OfferRow.of(offer)
    assert_sound(read)
    assert read is None or read.usd_per_hour > 0
    with suppress(UnreachableError):
        assert_sound(InstanceRow.of(instance))


@readers
@given(ANYTHING)
def test_json_is_read_or_refused(content: bytes) -> None:
    with suppress(RecordError):
        json.dumps(parse_json(content), ensure_ascii=False).encode("utf-8", "surrogatepass")


def lies() -> st.SearchStrategy[Lie]:
    """A box that says something else here and there, from a moment on."""
    files = {
        layout.OUTCOME: ANYTHING | written(mutated(GOOD)),
        layout.STEPS: ANYTHING | written(STEPS),
        layout.EXIT: ANYTHING,
        layout.LEASE_STATE: ANYTHING,
        layout.ONSTART_ERRORS: ANYTHING,
        layout.LOG: ANYTHING | st.builds(lambda text: text.encode("utf-8", "replace"), ODD_TEXTS),
        layout.MANIFEST: ANYTHING | written(MANIFESTS),
        f"{layout.CHECKPOINTS}/latest.json": ANYTHING | written(LATEST),
    }

    def lie(
        status: dict[str, Any] | None, supervisor: dict[str, Any], told: dict[str, bytes], entries: Any
    ) -> Lie:
        def change(honest: dict[str, Any]) -> None:
            honest["supervisor"] |= supervisor
            honest |= status or {}

        return Lie(status=change, files=told, listed=tuple(entries), harmless=True)

    return st.builds(
        lie,
        st.none() | st.dictionaries(st.sampled_from(sorted(STATUS)), VALUES, max_size=3),
        st.dictionaries(st.sampled_from(["step", "steps", "loss", "ranks", "x"]), VALUES, max_size=2),
        st.fixed_dictionaries({}, optional=files).filter(lambda told: len(told) <= 3),
        st.lists(ENTRIES.filter(lambda entry: isinstance(entry, dict)), max_size=3),
    )


@pytest.mark.slow
@pytest.mark.parametrize("since", PHASES)
@pytest.mark.parametrize("asks", ASKS, ids=lambda asks: asks.__name__)
def test_a_run_on_a_box_that_says_anything_comes_to_a_good_end(asks: Asks, since: Since) -> None:
    few = settings(whole_runs, max_examples=max(1, RUNS // (len(PHASES) * len(ASKS))))
    few(given(lies())(lambda lie: come_to_a_good_end(lie, since, asks)))()


def come_to_a_good_end(lie: Lie, since: Since, asks: Asks) -> None:
    with tempfile.TemporaryDirectory() as folder:
        terminal = lying_terminal(Path(folder), lie, since, Training())
        asks(terminal)
        assert_no_crash(terminal.launch())
        assert_a_good_end(terminal, lie)
        if terminal.ledger.runs()[0].cause is None and layout.OUTCOME in lie.files and since != "end":
            told = json.loads(lie.files[layout.OUTCOME])  # type: ignore[arg-type]
            assert told["final_record"] is True
            assert type(told["steps_done"]) is int
            assert told["reason"] == "finished"


def metadata() -> bytes:
    """Of a small checkpoint."""
    size, start = torch.Size([2, 3]), torch.Size([0, 0])
    tensor = TensorStorageMetadata(
        properties=TensorProperties(dtype=torch.float32),
        size=size,
        chunks=[ChunkStorageMetadata(offsets=start, sizes=size)],
    )
    place = {MetadataIndex("model.x", start, 0): _StorageInfo("__0_0.distcp", 0, 100)}
    return pickle.dumps(Metadata(state_dict_metadata={"model.x": tensor}, storage_data=place))


@pytest.mark.torch
def test_metadata_of_tensors_are_read_or_refused() -> None:
    from vastrun.contract.checkpoint_folder import DamagedError
    from vastrun.trainer.checkpoints.metadata import read_metadata

    whole = metadata()

    @readers
    @given(
        st.lists(st.tuples(st.integers(0, len(whole) - 1), st.integers(0, 255)), min_size=1, max_size=6),
        st.randoms(),
    )
    def read(changes: list[tuple[int, int]], chance: random.Random) -> None:
        content = bytearray(whole)
        for place, byte in changes:
            content[place] = byte
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / ".metadata").write_bytes(content)
            with suppress(DamagedError):
                read_metadata(Path(folder))

    read()


def assert_sound(noun: Any) -> None:
    """No field is larger than it may be, or no number, or of half a character."""
    if is_dataclass(noun):
        for each in fields(noun):
            assert_sound(getattr(noun, each.name))
    elif isinstance(noun, tuple | list):
        assert len(noun) <= caps.FILES
        for value in noun:
            assert_sound(value)
    elif isinstance(noun, float):
        assert math.isfinite(noun)
    elif isinstance(noun, int):
        assert abs(noun) <= 2**53
    elif isinstance(noun, str):
        assert len(noun) <= caps.LINE_CHARACTERS
