"""Metrics that come home while the box trains, and the curves that are read of them."""

import itertools
import json
import math
import tempfile
from collections.abc import Iterable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fakebox import manifest_of
from tests.launcher.outputs.boxes import MemoryBox, run_in
from vastrun.contract import layout
from vastrun.launcher.core import Run
from vastrun.launcher.core.errors import BoxError
from vastrun.launcher.gate import caps
from vastrun.launcher.outputs.folder import Outputs
from vastrun.launcher.outputs.store import FolderStore

STORE = FolderStore()


def line(step: int, loss: object, **more: object) -> bytes:
    return json.dumps({"step": step, "loss": loss, **more}).encode() + b"\n"


def lines(steps: Iterable[int]) -> bytes:
    return b"".join(line(step, 1 / (1 + step)) for step in steps)


@pytest.fixture
def run(tmp_path: Path) -> Run:
    made = run_in(tmp_path / "out")
    STORE.check(made)
    return made


def home(run: Run) -> bytes:
    place = Outputs(run).path(layout.METRICS)
    return place.read_bytes() if place.exists() else b""


def test_new_whole_lines_come_home_and_half_a_line_waits_for_its_end(run: Run) -> None:
    box = MemoryBox({})
    assert STORE.download_metrics(run, box) == 0
    assert not Outputs(run).path(layout.METRICS).exists()

    written = lines(range(5))
    for end in (len(written) - 3, len(written)):
        box.files[layout.METRICS] = written[:end]
        STORE.download_metrics(run, box)
        assert home(run) == written[: written.rfind(b"\n", 0, end) + 1]
    assert STORE.download_metrics(run, box) == 0


def test_a_look_that_finds_nothing_new_is_one_read_of_a_few_bytes(run: Run) -> None:
    box = MemoryBox({layout.METRICS: lines(range(1000))})
    STORE.download_metrics(run, box)
    box.asked.clear()
    STORE.download_metrics(run, box)
    assert box.asked == [layout.METRICS]


def test_many_lines_come_in_slices(run: Run) -> None:
    written = lines(range(60_000))
    box = MemoryBox({layout.METRICS: written})
    brought = [STORE.download_metrics(run, box) for _ in range(4)]
    assert all(caps.METRICS_SLICE_BYTES // 2 < size <= caps.METRICS_SLICE_BYTES for size in brought[:1])
    assert sum(brought) == len(written)
    assert home(run) == written


def test_a_training_that_began_again_at_its_checkpoint_has_its_copy_begun_anew(run: Run) -> None:
    """As rank 0 does it: what was told beyond the checkpoint is cut off, and told again."""
    box, outputs = MemoryBox({layout.METRICS: lines(range(0, 600, 10))}), Outputs(run)
    STORE.download_metrics(run, box)
    assert outputs.curve("loss")[-1][0] == 590

    again = lines(range(0, 400, 10)) + b"".join(line(step, 0.5) for step in range(400, 900, 10))
    box.files[layout.METRICS] = again
    STORE.download_metrics(run, box)

    assert home(run) == again
    curve = outputs.curve("loss")
    assert [step for step, _ in curve] == list(range(0, 900, 10))
    assert {value for step, value in curve if step >= 400} == {0.5}


def test_metrics_that_vanish_on_the_box_stay_here(run: Run) -> None:
    box = MemoryBox({layout.METRICS: lines(range(9))})
    STORE.download_metrics(run, box)
    del box.files[layout.METRICS]
    assert STORE.download_metrics(run, box) == 0
    assert home(run) == lines(range(9))


def test_what_came_home_before_is_not_fetched_again_at_the_end(run: Run) -> None:
    written = lines(range(100))
    box = MemoryBox({layout.METRICS: written, layout.LOG: b""})
    STORE.download_metrics(run, box)
    box.files[layout.MANIFEST] = manifest_of({layout.METRICS: written})
    box.asked.clear()

    STORE.collect(run, box)

    assert layout.METRICS not in box.asked
    assert home(run) == written


@pytest.mark.parametrize("content", [b"x" * (2 << 20), lines(range(9)) + b"x" * (2 << 20)])
def test_a_line_without_an_end_is_refused(content: bytes, run: Run) -> None:
    box = MemoryBox({layout.METRICS: content})
    with pytest.raises(BoxError, match="line"):
        for _ in range(3):
            STORE.download_metrics(run, box)


def test_metrics_without_an_end_are_refused_at_their_limit(run: Run) -> None:
    place = Outputs(run).path(layout.METRICS)
    full = b"1\n" * (caps.SMALL_FILES[layout.METRICS] // 2)
    place.write_bytes(full)
    box = MemoryBox({layout.METRICS: full + b"1\n"})
    with pytest.raises(BoxError, match="larger"):
        STORE.download_metrics(run, box)
    assert place.stat().st_size == len(full)


def test_a_curve_has_what_was_told_of_its_metric_and_nothing_else(run: Run) -> None:
    place = Outputs(run).path(layout.METRICS)
    place.write_bytes(
        line(10, 0.5)
        + b'{"step": 10, "validation_nrmse": 0.9}\n'
        + line(20, None)
        + b"no JSON\n[1]\n7\n"
        + line(-1, 0.1)
        + b'{"loss": 0.1}\n{"step": "30", "loss": 0.1}\n{"step": 30, "loss": "low"}\n'
        + line(40, float("nan"))
        + line(50, 10**400)
        + line(60, True)
        + b'{"step": 70, "loss": 0.2'
    )
    outputs = Outputs(run)

    steps, values = zip(*outputs.curve("loss"), strict=True)
    assert steps == (10, 20, 30, 40, 50, 60)
    assert values[0] == 0.5
    assert all(math.isnan(value) for value in values[1:])
    assert outputs.curve("validation_nrmse") == ((10, 0.9),)
    assert outputs.curve("other") == ()


def test_a_curve_grows_with_its_file_and_reads_only_what_is_new(run: Run) -> None:
    place, outputs = Outputs(run).path(layout.METRICS), Outputs(run)
    assert outputs.curve("loss") == ()
    place.write_bytes(lines(range(0, 50, 10)))
    assert len(outputs.curve("loss")) == 5

    with place.open("r+b") as file:  # a reader that read it again would see the other value
        file.write(line(0, 7.0)[:20])
        file.seek(0, 2)
        file.write(lines(range(50, 100, 10)))

    assert [step for step, _ in outputs.curve("loss")] == list(range(0, 100, 10))
    assert outputs.curve("loss")[0] == (0, 1.0)


def test_steps_that_go_back_are_those_of_a_training_that_began_again(run: Run) -> None:
    """A program of the user's own appends to the file, whatever it wrote before."""
    Outputs(run).path(layout.METRICS).write_bytes(
        line(100, 0.5) + line(200, 0.4) + line(300, 0.1) + line(200, 0.6)
    )
    assert Outputs(run).curve("loss") == ((100, 0.5), (200, 0.6))


def test_a_line_that_fills_a_chunk_is_skipped(run: Run) -> None:
    place = Outputs(run).path(layout.METRICS)
    place.write_bytes(line(1, 0.5) + b'{"loss": "' + b"x" * (3 << 20) + b'"}\n' + line(2, 0.4))
    assert Outputs(run).curve("loss") == ((1, 0.5), (2, 0.4))


def test_a_long_curve_keeps_its_early_and_its_newest_points(run: Run) -> None:
    Outputs(run).path(layout.METRICS).write_bytes(lines(range(40_000)))
    curve = Outputs(run).curve("loss")
    assert len(curve) < 8000
    assert curve[-1][0] == 39_999
    kept = [step for step, _ in curve]
    assert kept[:1000] == list(range(1000))
    assert all(later - former <= max(1, later / 500) for former, later in itertools.pairwise(kept))


@given(st.lists(st.binary(max_size=40) | st.builds(line, st.integers(), st.floats() | st.none()), max_size=9))
def test_no_file_makes_a_curve_fail_and_reading_it_in_parts_gives_the_same(parts: list[bytes]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        run = run_in(Path(folder))
        place, reading = Outputs(run).path(layout.METRICS), Outputs(run)
        for part in parts:
            with place.open("ab") as file:
                file.write(part)
            growing = reading.curve("loss")
        if parts:
            whole = Outputs(run).curve("loss")
            assert repr(growing) == repr(whole)
