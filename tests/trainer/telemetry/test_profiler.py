"""Profiler: which steps are recorded, what is left of them, and a snapshot when memory ran out."""

import gzip
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.trainer.conftest import Box, Start
from vastrun.contract import layout
from vastrun.contract.job import Job
from vastrun.contract.layout import PROFILES
from vastrun.contract.reports import read_beat
from vastrun.trainer import data
from vastrun.trainer.distributed.rank import Heartbeat, Rank
from vastrun.trainer.distributed.signals import StopSignal
from vastrun.trainer.job.config import ProfileConfig, TrainConfig, config_of
from vastrun.trainer.telemetry.profiler import (
    MAX_ENTRIES,
    MAX_RAW_TRACE_BYTES,
    MAX_SNAPSHOT_BYTES,
    MAX_TRACE_BYTES,
    MemoryHistory,
    Profiler,
)

STEPS = 20
NO_MEMORY = RuntimeError("CUDA out of memory. Tried to allocate 2 GiB")
PARTS = ["data", "forward", "backward", "optimizer"]


def profiler(box: Path, rank: int = 0, heart: Heartbeat | None = None, **profile: Any) -> Profiler:
    config = TrainConfig(steps=STEPS, profile=ProfileConfig(**profile) if profile else None)
    place = Rank(rank=rank, local_rank=rank, world_size=2, box=box)
    stop = StopSignal(lambda: None, min_s=1, grace_s=1, saving_grace_s=1)
    heart = heart or Heartbeat(box / layout.HEARTBEATS / f"rank-{rank}")
    return Profiler(place, config, heart, stop)


def train(profiler: Profiler, start: int = 0, end: int = STEPS) -> None:
    weights = torch.zeros(8, 8, requires_grad=True)
    with profiler:
        profiler.begin_at(start)
        for step in range(start, end):
            with profiler.step(step) as heart:
                heart.beat(step, "data")
                fields = torch.ones(8, 8)
                heart.beat(step, "forward")
                loss = (fields @ weights).sum()
                heart.beat(step, "backward")
                loss.backward()
                heart.beat(step, "optimizer")


def labels(path: Path) -> list[str]:
    """What is marked in a trace, in order."""
    events = json.loads(gzip.decompress(path.read_bytes()))["traceEvents"]
    marked = [event for event in events if event.get("cat") == "user_annotation"]
    return [event["name"] for event in sorted(marked, key=lambda event: event["ts"])]


def expected(first: int, steps: int) -> list[str]:
    return [name for step in range(first, first + steps) for name in (f"step {step}", *PARTS)]


def files(box: Path) -> set[str]:
    return {path.name for path in (box / layout.PROFILES).glob("*")}


def test_a_jobs_steps_are_recorded_with_parts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    train(profiler(tmp_path, step=5, steps=3))
    assert labels(tmp_path / f"{PROFILES}/trace-step-5.json.gz") == expected(5, 3)
    assert "aten::mm" in (tmp_path / f"{PROFILES}/operations-step-5.txt").read_text()
    assert files(tmp_path) == {"trace-step-5.json.gz", "operations-step-5.txt"}
    assert "profile of steps 5 to 7: profile/trace-step-5.json.gz" in capsys.readouterr().out


def test_shapes_are_recorded_only_where_the_job_says_so(tmp_path: Path) -> None:
    for shapes in (False, True):
        box = tmp_path / str(shapes)
        train(profiler(box, step=5, steps=1, shapes=shapes))
        trace = gzip.decompress((box / PROFILES / "trace-step-5.json.gz").read_bytes())
        assert (b"Input Dims" in trace) is shapes


def test_the_heartbeat_goes_on_under_the_labels(tmp_path: Path) -> None:
    train(profiler(tmp_path, step=5, steps=3), end=7)
    beat = read_beat(tmp_path / layout.HEARTBEATS / "rank-0")
    assert beat is not None
    assert (beat.step, beat.activity) == (6, "optimizer")


def test_heartbeat_of_a_later_stage_has_the_recorded_step_while_the_trace_is_written(tmp_path: Path) -> None:
    stage = Heartbeat(tmp_path / layout.HEARTBEATS / "rank-0")
    stage.first_step = 10
    later = profiler(tmp_path, heart=stage, step=12, steps=2)
    with later:
        later.begin_at(10)
        for step in range(4):
            with later.step(stage.first_step + step) as heart:
                heart.beat(step, "optimizer")
    beat = read_beat(tmp_path / layout.HEARTBEATS / "rank-0")
    assert beat is not None
    assert (beat.step, beat.activity, stage.step) == (13, "checkpoint", 13)


@pytest.mark.parametrize(("start", "recorded"), [(0, True), (4, True), (5, True), (6, False), (9, False)])
def test_steps_before_a_resume_are_not_recorded_again(start: int, recorded: bool, tmp_path: Path) -> None:
    train(profiler(tmp_path, step=5, steps=3), start=start)
    assert bool(files(tmp_path)) is recorded


def test_other_ranks_record_nothing(tmp_path: Path) -> None:
    train(profiler(tmp_path, rank=1, step=5, steps=3))
    assert files(tmp_path) == set()


def test_an_end_within_the_profile_is_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    train(profiler(tmp_path, step=5, steps=3), end=6)
    assert "note: no profile of steps 5 to 7: the training ended" in capsys.readouterr().out


def test_a_trace_that_cannot_be_written_is_a_note_and_the_training_goes_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / layout.RUN).mkdir()
    (tmp_path / layout.PROFILES).write_text("in the way")
    train(profiler(tmp_path, step=5, steps=3))
    assert "note: no profile of steps 5 to 7: FileExistsError" in capsys.readouterr().out


def test_the_largest_trace_is_as_the_page_tells() -> None:
    told = f"{MAX_RAW_TRACE_BYTES >> 30} GiB, or {MAX_TRACE_BYTES >> 20} MiB compressed, is dropped"
    page = Path(__file__).parents[3] / "docs" / "training.md"
    assert told in " ".join(page.read_text(encoding="utf-8").split())


@dataclass
class FakeMemory:
    """Keeps what it was asked for."""

    size: int = 8
    fault: Exception | None = None
    recorded: dict[str, Any] = field(default_factory=dict)

    def _record_memory_history(self, **options: Any) -> None:
        if self.fault:
            raise self.fault
        self.recorded = options

    def _dump_snapshot(self, path: str) -> None:
        with Path(path).open("wb") as file:
            file.truncate(self.size)


def history(box: Path, memory: FakeMemory) -> MemoryHistory:
    made = MemoryHistory(box, 3, memory)
    made.begin()
    return made


def test_a_bounded_history_is_recorded_and_a_snapshot_written_when_memory_runs_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    memory = FakeMemory()
    history(tmp_path, memory).write_after(NO_MEMORY)
    assert memory.recorded == {"max_entries": MAX_ENTRIES, "stacks": "python"}
    assert (tmp_path / f"{PROFILES}/memory-rank-3.pickle").stat().st_size == memory.size
    assert "profile/memory-rank-3.pickle" in capsys.readouterr().out


def test_another_error_leaves_no_snapshot(tmp_path: Path) -> None:
    history(tmp_path, FakeMemory()).write_after(ValueError("no such grid"))
    assert list(tmp_path.iterdir()) == []


def test_a_too_large_snapshot_is_removed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    history(tmp_path, FakeMemory(size=MAX_SNAPSHOT_BYTES + 1)).write_after(NO_MEMORY)
    assert list((tmp_path / PROFILES).iterdir()) == []
    assert "note: no snapshot of GPU memory was written: it is too large (256 MiB)" in capsys.readouterr().out


def test_a_torch_that_cannot_record_is_noted_and_asked_for_nothing_more(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = history(tmp_path, FakeMemory(fault=RuntimeError("not compiled in")))
    made.write_after(NO_MEMORY)
    assert "not compiled in" in capsys.readouterr().out
    assert list(tmp_path.iterdir()) == []


@pytest.mark.torch
@pytest.mark.slow
def test_a_profile_has_the_requested_steps_with_parts_and_keeps_losses(
    tmp_path: Path, start_ranks: Start
) -> None:
    def trained(name: str, **settings: Any) -> Box:
        box = Box(tmp_path / name, **settings)
        job = config_of(Job.read(box.path))
        data.generate(job.data[0], box.path / layout.DATA)
        assert start_ranks(box, 2).wait() == [0, 0], box.log(0)
        return box

    usual, profiled = trained("usual"), trained("profiled", profile={"step": 5, "steps": 3})
    events = json.loads(gzip.decompress((profiled.path / PROFILES / "trace-step-5.json.gz").read_bytes()))[
        "traceEvents"
    ]
    marked = [event["name"] for event in events if event.get("cat") == "user_annotation"]
    assert {name for name in marked if name.startswith("step ")} == {"step 5", "step 6", "step 7"}
    assert {"data", "forward", "backward", "optimizer"} <= set(marked)
    assert any(event["name"] == "gloo:all_reduce" for event in events)
    assert "aten::" in (profiled.path / PROFILES / "operations-step-5.txt").read_text()
    assert not (usual.path / layout.PROFILES).exists()
    assert profiled.losses() == usual.losses()
