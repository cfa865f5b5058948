"""Extrapolation: a deep model is traced with two small depths, from which its own figures follow.

The blocks of a model are alike. Each block more adds the same operations, and the same bytes to the memory at
a given moment of a step: figures are linear in the depth. A peak is the maximum over moments, and in a deeper
model it may be at another one. So each block of a backward pass is a phase, whose peak is extrapolated by
itself, and the maximum over the phases is taken last.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace

from vastrun.contract.config import MODELS, TrainConfig
from vastrun.contract.workload import PeakBytes

_DEPTHS = (2, 3)
"""Blocks that are traced: with one, the first block would be the last one, too."""
FIRST, MIDDLE, LAST = ", first block", ", middle block", ", last block"
_MIN_DEPTH = 6
"""Models with fewer blocks are traced as they are."""


@dataclass(frozen=True)
class Work:
    """Work done so far, or between two moments: FLOPs, bytes moved, operations."""

    flops: float
    traffic_bytes: float
    operations: float

    def __sub__(self, other: Work) -> Work:
        return Work(*(end - start for end, start in zip(self.parts, other.parts, strict=True)))

    @property
    def parts(self) -> tuple[float, float, float]:
        return self.flops, self.traffic_bytes, self.operations


@dataclass(frozen=True, kw_only=True)
class Trace:
    """Figures of a step of one depth."""

    work: Work
    peaks: Mapping[str, PeakBytes]
    """Peak of each phase, by name."""

    @property
    def peak(self) -> PeakBytes:
        """Return the peak of the step."""
        return max(self.peaks.values(), key=lambda peak: peak.total)


def traced_depths(config: TrainConfig, strategy: str, world_size: int) -> tuple[int, ...]:
    """Return the depths to trace: two small ones, or the model's own where its blocks say too little."""
    # Muon gathers as many sharded matrices at once as there are ranks: its memory is not linear in the depth.
    is_grouped = config.optim.name == "muon" and strategy == "fsdp2" and world_size > 1
    if config.model.name not in MODELS or config.model.depth < _MIN_DEPTH or is_grouped:
        return (config.model.depth,)
    return _DEPTHS


def with_depth(config: TrainConfig, depth: int) -> TrainConfig:
    """Return the job with another number of blocks."""
    return replace(config, model=replace(config.model, depth=depth))


def block_position(number: int, blocks: int) -> str:
    """Return the position of a block by its number: the first, the last, or one in between."""
    return FIRST if number == 0 else LAST if number == blocks - 1 else MIDDLE


def extrapolate(traces: Mapping[int, Trace], depth: int) -> Trace:
    """Return the figures of a depth from those of itself, or of two and three blocks."""
    if depth in traces:
        return traces[depth]
    low, high = (traces[each] for each in _DEPTHS)
    more = depth - _DEPTHS[1]
    work = (end + more * (end - begin) for begin, end in zip(low.work.parts, high.work.parts, strict=True))
    peaks = {
        phase: _plus(peak, low.peaks[phase], peak, more)
        for phase, peak in high.peaks.items()
        if phase in low.peaks
    }
    for phase in high.peaks.keys() - low.peaks.keys():
        # A block in the middle: the one that is reached next after the last block, and next before the first.
        for end in (LAST, FIRST):
            like = phase.replace(MIDDLE, end)
            peaks[f"{phase} like {end}"] = _plus(high.peaks[phase], low.peaks[like], high.peaks[like], more)
    return Trace(work=Work(*work), peaks=peaks)


def _plus(peak: PeakBytes, low: PeakBytes, high: PeakBytes, blocks: int) -> PeakBytes:
    """Return a peak with that many blocks more, each of which adds the difference of two others."""
    return PeakBytes(
        **{
            each.name: getattr(peak, each.name)
            + blocks * (getattr(high, each.name) - getattr(low, each.name))
            for each in fields(PeakBytes)
        }
    )
