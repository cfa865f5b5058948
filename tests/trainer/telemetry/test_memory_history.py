"""Memory history: a snapshot of a GPU's memory when it ran out, with a stand-in for torch.cuda.memory."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from vastrun.contract.layout import memory_path
from vastrun.trainer.telemetry.profiler import MAX_ENTRIES, MAX_SNAPSHOT_BYTES, MemoryHistory

NO_MEMORY = RuntimeError("CUDA out of memory. Tried to allocate 2 GiB")


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
    assert (tmp_path / memory_path(3)).stat().st_size == memory.size
    assert "profile/memory-rank-3.pickle" in capsys.readouterr().out


def test_another_error_leaves_no_snapshot(tmp_path: Path) -> None:
    history(tmp_path, FakeMemory()).write_after(ValueError("no such grid"))
    assert list(tmp_path.iterdir()) == []


def test_a_too_large_snapshot_is_removed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    history(tmp_path, FakeMemory(size=MAX_SNAPSHOT_BYTES + 1)).write_after(NO_MEMORY)
    assert list((tmp_path / memory_path(3)).parent.iterdir()) == []
    assert "note: no snapshot of GPU memory was written: it is too large (256 MiB)" in capsys.readouterr().out


def test_a_torch_that_cannot_record_is_noted_and_asked_for_nothing_more(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = history(tmp_path, FakeMemory(fault=RuntimeError("not compiled in")))
    made.write_after(NO_MEMORY)
    assert "not compiled in" in capsys.readouterr().out
    assert list(tmp_path.iterdir()) == []
