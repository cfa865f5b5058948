"""Current stage: which of several stages this start of the ranks trains, by the files of its box.

A stage is over when its checkpoint has all of its steps and `run/stages.json` has its scores. So ranks that
were started again, here or on another machine, continue in the right stage without being told which.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

from vastrun.contract import layout
from vastrun.contract.program import StageRecord, StageSpan, read_records
from vastrun.contract.records import RecordError, read_as, write_json
from vastrun.trainer.checkpoints import TrainerState
from vastrun.trainer.checkpoints.disk import find_disk
from vastrun.trainer.checkpoints.reader import FoundCheckpoint, newest_intact
from vastrun.trainer.distributed.group import Ranks
from vastrun.trainer.job.config import TrainConfig
from vastrun.trainer.job.stage_config import GateConfig, missed_gate

Records = tuple[StageRecord, ...]


@dataclass(frozen=True, kw_only=True)
class CurrentStage:
    """The stage that is trained now, among those of the run."""

    span: StageSpan
    spans: tuple[StageSpan, ...]
    finished: Records = ()
    """Results of the stages before it."""

    @classmethod
    def only(cls, config: TrainConfig) -> Self:
        """Return the stage of a job that trains a single one."""
        [span] = config.stage_spans
        return cls(span=span, spans=(span,))

    @property
    def is_one_of_several(self) -> bool:
        """Tell whether the run trains several stages."""
        return len(self.spans) > 1

    @property
    def total_steps(self) -> int:
        """Return the steps of all stages."""
        return self.spans[-1].end_step

    def run_step(self, step: int) -> int:
        """Return the step of the run after `step` steps of this stage."""
        return self.span.first_step + step

    def __str__(self) -> str:
        return f"{self.span.name}, stage {self.span.number + 1} of {len(self.spans)}"


def find_current_stage(ranks: Ranks, config: TrainConfig) -> tuple[CurrentStage, FoundCheckpoint | None]:
    """Find the stage to train, and the checkpoint by which it was found. All ranks call this, and agree.

    For a job with a single stage nothing is read, and the checkpoint is None. Raises ConfigError when there
    are checkpoints and none is intact.
    """
    spans, box = config.stage_spans, ranks.rank.box
    if len(spans) == 1:
        return CurrentStage(span=spans[0], spans=spans), None
    folder = box / layout.CHECKPOINTS
    found = newest_intact((folder, box / layout.RESUME), find_disk(folder, ranks))
    state = found.state if found else None
    records: Records = ranks.broadcast_object(
        _known_records(box, state, spans) if ranks.rank.is_first else None
    )
    span = stage_to_train(spans, state, records)
    finished = tuple(
        replace(record, missed=missed_gate(config.gate_of(record.stage), record.stage, record.scores))
        for record in records[: span.number]
    )
    current = CurrentStage(span=span, spans=spans, finished=finished)
    if ranks.rank.is_first:
        write_json(box / layout.STAGE, {"stage": span.name, "number": span.number})
        write_json(box / layout.STAGES, [*map(vars, current.finished)])
    return current, found


def stage_to_train(
    spans: Sequence[StageSpan], state: TrainerState | None, records: Sequence[StageRecord]
) -> StageSpan:
    """Return the stage to train now, by the newest checkpoint and the results so far, if there are any."""
    saved = None if state is None else next((s for s in spans if s.name == state.config.get("stage")), None)
    if state is None or saved is None:
        # With a checkpoint of another stage: the first one may start from it, or says why not.
        return spans[0]
    is_trained = state.step - state.first_step >= saved.steps
    is_over = is_trained and len(records) > saved.number and saved is not spans[-1]
    return spans[saved.number + 1] if is_over else saved


def record_result(
    box: Path,
    current: CurrentStage,
    gate: GateConfig,
    *,
    loss: float | None,
    scores: Mapping[str, float],
    run_id: str,
) -> None:
    """Write that the current stage is over, with its scores. Raises OSError."""
    span = current.span
    record = StageRecord(
        stage=span.name,
        first_step=span.first_step,
        steps=span.steps,
        loss=loss,
        scores=scores,
        missed=missed_gate(gate, span.name, scores),
        run_id=run_id,
    )
    write_json(box / layout.STAGES, [*map(vars, (*current.finished, record))])


def _known_records(box: Path, state: TrainerState | None, spans: Sequence[StageSpan]) -> Records:
    """Return the results of the first stages: those of this box, else those that the checkpoint names."""
    known = read_records(box) or (_records_of(state) if state else ())
    # Only as far as they are those of this job: with other steps, a stage is scored again.
    count = 0
    while count < min(len(known), len(spans)) and known[count].is_of(spans[count]):
        count += 1
    return tuple(known[:count])


def _records_of(state: TrainerState) -> Records:
    """Return the results in a checkpoint, which may come from a stranger's machine; none where they are
    malformed."""
    try:
        return tuple(read_as(StageRecord, one) for one in state.stages)
    except RecordError:
        return ()


def state_fields(current: CurrentStage) -> dict[str, Any]:
    """Return what a checkpoint of the current stage says about the run's stages."""
    return {
        "first_step": current.span.first_step,
        "stages": tuple(dict(vars(record)) for record in current.finished),
    }
