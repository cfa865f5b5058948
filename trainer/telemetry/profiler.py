"""Profiler: rank 0 records some steps with `torch.profiler` and writes a Chrome trace of them.

Where a job asks for it, each rank records its GPU's memory, for a snapshot when that runs out.
"""

import gzip
import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import torch
from torch.profiler import ProfilerActivity, profile, record_function

from vastrun.contract import layout
from vastrun.contract.records import write_atomically
from vastrun.trainer.distributed.exit import is_out_of_memory
from vastrun.trainer.distributed.rank import Activity, Heartbeat, Rank
from vastrun.trainer.distributed.signals import StopSignal
from vastrun.trainer.job.config import TrainConfig

_FAULTS = (AssertionError, AttributeError, MemoryError, OSError, RuntimeError, TypeError, ValueError)
"""Errors that torch's experimental profiler may raise: they are printed, and the training continues."""
_LAST_WRITE_S = 10.0
"""Seconds that a finished training waits for its last trace."""
_LAST_WRITE_AT_STOP_S = 3.0
"""Seconds to wait for it after an error or a stop: other ranks wait for this rank to exit."""
MAX_RAW_TRACE_BYTES, MAX_TRACE_BYTES = 1 << 30, 256 << 20
"""Maximum size of a trace, and of a compressed one; a larger one is deleted."""
_OPERATIONS = 60
"""Rows of the table of operations."""
MAX_ENTRIES = 100_000
"""Maximum recorded allocations and frees, the last ones; each takes some KB of main memory."""
MAX_SNAPSHOT_BYTES = 256 << 20
"""Maximum size of a snapshot; a larger one is deleted."""


class Profiler:
    """A context around a training. On all ranks but the first it records no steps.

        with Profiler(rank, config, heart, stop) as profiler:
            profiler.begin_at(start)
            for step in range(start, steps):
                with profiler.step(step) as heart:
                    train_step(session, step, heart)

    The step before the recorded ones warms up: the first start of CUPTI takes seconds on a GPU.
    """

    def __init__(self, rank: Rank, config: TrainConfig, heart: Heartbeat, stop: StopSignal) -> None:
        self._rank, self._config, self._heart, self._stop = rank, config, heart, stop
        self._memory: MemoryHistory | None = None
        self._planned: range | None = None
        """Steps of `train.profile` before they start."""
        self._window: range | None = None
        """Steps that are recorded now, or after the warm-up."""
        self._profile: profile | None = None
        self._writer: threading.Thread | None = None

    def begin_at(self, step: int) -> None:
        """Begin with `step`; steps of `train.profile` that an earlier start did are skipped."""
        options = self._config.profile
        if options is None:
            return
        if options.memory and torch.cuda.is_initialized():
            self._memory = MemoryHistory(self._rank.box, self._rank.rank, torch.cuda.memory)
            self._memory.begin()
        if self._rank.is_first and options.step is not None and options.step >= step:
            self._planned = range(options.step, options.step + options.steps)

    @contextmanager
    def step(self, step: int) -> Iterator[Heartbeat]:
        """Record step number `step` if a window includes it. Yields the heartbeat for the step.

        That heartbeat also labels the activities of the step in the trace.
        """
        if self._planned and step >= self._planned[0] - 1:
            self._window, self._planned = self._planned, None
        window = self._window
        if window is None or not self._is_ready(window, step) or step < window[0]:
            yield self._heart
            return
        heart = _LabellingHeartbeat(self._heart)
        with record_function(f"step {step}"):
            yield heart
            heart.end_label()
        if step == window[-1]:
            self._finish(window)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._window:
            if self._profile and error is None:
                with suppress(*_FAULTS):  # it may not have been started
                    self._profile.stop_trace()
            self._drop(self._window, "the training ended before the last recorded step")
        if self._memory and error is not None:
            self._memory.write_after(error)
        if self._writer:
            is_urgent = error is not None or self._stop.asked
            self._writer.join(_LAST_WRITE_AT_STOP_S if is_urgent else _LAST_WRITE_S)

    def _is_ready(self, window: range, step: int) -> bool:
        """Prepare torch's profiler for `step`, in the window or its warm-up; False if that failed."""
        try:
            if self._profile is None:
                on_gpu = [ProfilerActivity.CUDA] if torch.cuda.is_initialized() else []
                self._profile = profile(
                    activities=[ProfilerActivity.CPU, *on_gpu],
                    record_shapes=self._config.profile is not None and self._config.profile.shapes,
                )
                self._profile.prepare_trace()
            if step == window[0]:
                self._profile.start_trace()
        except _FAULTS as fault:
            self._drop(window, fault)
            return False
        return True

    def _finish(self, window: range) -> None:
        """End the recording. A thread compresses the trace while the training continues."""
        trace = self._rank.box / layout.PROFILES / f"trace-step-{window[0]}.json.gz"
        raw = trace.with_name(f".{trace.name}.raw.part")
        assert self._profile is not None
        last = window[-1] - self._heart.first_step  # a heartbeat counts the steps of its stage
        with self._stop.saving():
            try:
                self._heart.beat(last, "checkpoint")
                self._profile.stop_trace()
                raw.parent.mkdir(parents=True, exist_ok=True)
                self._heart.beat(last, "checkpoint")
                self._profile.export_chrome_trace(str(raw))
                _check_size(raw, MAX_RAW_TRACE_BYTES)
            except _FAULTS as fault:
                _remove(raw)
                self._drop(window, fault)
                return
        arguments = (window, trace, raw, self._profile)
        self._window = self._profile = None
        self._writer = threading.Thread(target=self._write, args=arguments, name="profile", daemon=True)
        self._writer.start()

    def _write(self, window: range, trace: Path, raw: Path, recorded: profile) -> None:
        try:
            with (
                _replacing(trace, MAX_TRACE_BYTES) as part,
                raw.open("rb") as source,
                gzip.open(part, "wb", compresslevel=6) as compressed,
            ):
                shutil.copyfileobj(source, compressed, 1 << 20)
            sort_by = "self_device_time_total" if torch.cuda.is_initialized() else "self_cpu_time_total"
            table = recorded.key_averages().table(sort_by=sort_by, row_limit=_OPERATIONS)
            path = self._rank.box / layout.PROFILES / f"operations-step-{window[0]}.txt"
            write_atomically(path, table, durable=False)
        except _FAULTS as fault:
            self._drop(window, fault)
            return
        finally:
            _remove(raw)
        name = trace.relative_to(trace.parents[1])
        print(
            f"profile of steps {window[0]} to {window[-1]}: {name}; open it at https://ui.perfetto.dev",
            flush=True,
        )

    def _drop(self, window: range, fault: Exception | str) -> None:
        text = fault if isinstance(fault, str) else f"{type(fault).__name__}: {fault}"
        print(f"note: no profile of steps {window[0]} to {window[-1]}: {text}", flush=True)
        if window is self._window:
            self._window = self._profile = None


class _LabellingHeartbeat(Heartbeat):
    """A heartbeat that also records its activities as ranges of the trace."""

    def __init__(self, heart: Heartbeat) -> None:
        self._heart = heart
        self._label: record_function | None = None

    def beat(self, step: int, activity: Activity = "step") -> None:
        self._heart.beat(step, activity)
        self.end_label()
        self._label = record_function(activity)
        self._label.__enter__()

    def end_label(self) -> None:
        """End the range of the last activity."""
        if self._label:
            self._label.__exit__(None, None, None)
            self._label = None


@contextmanager
def _replacing(path: Path, max_bytes: int) -> Iterator[Path]:
    """Yield a temporary file that replaces `path` at the end. Raises OSError for one above `max_bytes`."""
    part = path.with_name(f".{path.name}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        yield part
        _check_size(part, max_bytes)
        part.replace(path)
    finally:
        _remove(part)


def _remove(path: Path) -> None:
    with suppress(OSError):
        path.unlink()


def _check_size(path: Path, max_bytes: int) -> None:
    """Raise OSError for a file larger than `max_bytes`."""
    size = path.stat().st_size
    if size > max_bytes:
        raise OSError(f"it is too large ({size >> 20} MiB)")


class MemoryHistory:
    """Records the allocations of one rank from its first step on, and writes a snapshot when one fails.

    Not by default: each allocation takes some microseconds longer. Only the error that ends the rank has a
    snapshot.
    """

    def __init__(self, box: Path, rank: int, memory: Any) -> None:
        """`memory`: `torch.cuda.memory`."""
        self._path = box / layout.PROFILES / f"memory-rank-{rank}.pickle"
        self._memory = memory

    def begin(self) -> None:
        """Start recording."""
        try:
            # Frames of C++ would be looked up one by one when the snapshot is written, for minutes.
            self._memory._record_memory_history(max_entries=MAX_ENTRIES, stacks="python")
        except RuntimeError as fault:
            print(f"note: the history of GPU memory cannot be recorded: {fault}", flush=True)
            self._memory = None

    def write_after(self, error: BaseException) -> None:
        """Write the snapshot if the error means that memory ran out."""
        if self._memory is None or not is_out_of_memory(error):
            return
        try:
            with _replacing(self._path, MAX_SNAPSHOT_BYTES) as part:
                self._memory._dump_snapshot(str(part))
        except (MemoryError, OSError, RuntimeError) as fault:
            print(f"note: no snapshot of GPU memory was written: {fault}", flush=True)
        else:
            name = self._path.relative_to(self._path.parents[1])
            print(f"snapshot of GPU memory: {name}; open it at https://pytorch.org/memory_viz", flush=True)
