"""Proofs: the evidence that a training did all that its job asks for. No torch: the launcher imports it."""

from collections.abc import Iterator

from vastrun.contract.outcome import Outcome
from vastrun.contract.program_kind import Proof
from vastrun.trainer.job.config import TrainConfig
from vastrun.trainer.job.stage_config import GateConfig


def proofs_of(outcome: Outcome, train: TrainConfig) -> Iterator[Proof]:
    """Yield a proof for each part of a training's success."""
    total_steps = train.total_steps
    yield from (_final(outcome), _steps(outcome, total_steps), _loss(outcome))
    yield _checkpoint(outcome, total_steps)
    yield from _stages(outcome, train)


def _final(outcome: Outcome) -> Proof:
    text = "the final record was written" if outcome.final_record else "the trainer wrote no final record"
    return Proof(name="record", holds=outcome.final_record, text=text)


def _steps(outcome: Outcome, planned: int) -> Proof:
    text = f"{outcome.steps_done} of {planned} steps were done"
    return Proof(name="steps", holds=outcome.steps_done == planned, text=text)


def _loss(outcome: Outcome) -> Proof:
    if outcome.loss_finite is None:
        return Proof(name="loss", holds=None, text="no loss was recorded")
    text = (
        f"the last loss is {outcome.last_loss:.4g}"
        if outcome.last_loss is not None
        else "the loss is not finite"
    )
    return Proof(name="loss", holds=outcome.loss_finite, text=text)


def _checkpoint(outcome: Outcome, planned: int) -> Proof:
    last = outcome.checkpoint
    if last is None:
        return Proof(name="checkpoint", holds=None, text="there is no checkpoint")
    if not last.intact:
        return Proof(name="checkpoint", holds=False, text=f"the checksum of {last.path} does not match")
    if last.step != planned:
        text = f"the newest checkpoint is of step {last.step}, not {planned}; it is intact"
        return Proof(name="checkpoint", holds=False, text=text)
    return Proof(name="checkpoint", holds=True, text=f"the checkpoint of step {last.step} is intact")


def _stages(outcome: Outcome, train: TrainConfig) -> Iterator[Proof]:
    """Yield a proof for each of several stages: all of its steps were done, and it passed its gate."""
    spans, ends = train.stage_spans, {end.name: end for end in outcome.stages}
    for span in spans if len(spans) > 1 else ():
        end = ends.get(span.name)
        done = 0 if end is None else end.steps_done
        text = f"{done} of {span.steps} steps"
        if end is None or end.run_id is None:
            where = "was not finished" if done else "was not started"
            yield Proof(name=f"stage.{span.name}", holds=None, text=f"it {where}: {text}")
        elif end.missed is not None:
            yield Proof(name=f"stage.{span.name}", holds=False, text=f"{text}; gate missed: {end.missed}")
        else:
            passed = ", its gate passed" if train.of_stage(span.name).gate != GateConfig() else ""
            holds = end.steps_done == span.steps
            yield Proof(name=f"stage.{span.name}", holds=holds, text=f"{text}; it was scored{passed}")
