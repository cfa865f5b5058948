"""The loop: set up in the one right order, train step by step, save, evaluate, leave."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict

from trainer import layout
from trainer.checks import check_start, check_step
from trainer.config import TrainConfig
from trainer.data.trajectories import Windows
from trainer.dist import StopVote, join
from trainer.ending import exit_code_of
from trainer.evaluate import evaluate
from trainer.heartbeat import Heartbeat
from trainer.metrics import Metrics
from trainer.outcome import Reason
from trainer.rank import Rank, TrainJob
from trainer.records import write_json
from trainer.session import Session, set_up
from trainer.signals import StopWish
from trainer.step import take_step
from trainer.telemetry.garbage import collect_by_the_step
from trainer.telemetry.reports import Reports


def train(rank: Rank, job: TrainJob, config: TrainConfig, heart: Heartbeat, stop: StopWish) -> Reason:
    """This rank's part of the training, from its set-up to its end. Only rank 0 writes."""
    if not rank.is_first:
        return _train(set_up(join(rank, job), job, config), heart, stop, None)
    with Metrics(rank.box, job, config) as metrics:
        return _train(set_up(join(rank, job), job, config), heart, stop, metrics)


def _train(session: Session, heart: Heartbeat, stop: StopWish, metrics: Metrics | None) -> Reason:
    config, step = session.config, session.start
    vote, reports = StopVote(session.ranks, step, session.clock), Reports(session, metrics)
    if metrics:
        metrics.begin_at(step, session.wandb_id)
    last = step >= config.steps
    check_start(session)
    while not last:
        session.clock.begin()
        losses = take_step(session, step, micro_batches(session, step, heart), heart)
        session.clock.end()
        step += 1
        collect_by_the_step(step, session.start)
        session.checkpoints.poll()
        last = step == config.steps or vote.passes(step, stop.asked)
        if last or step == session.start + 1 or step % config.log_every == 0:
            reports.report(step, losses)
        check_step(session, step, reports.loss)
        if not last and step % config.checkpoint_every == 0:
            _save(session, step, reports, heart, stop, durable=False)
    _save(session, step, reports, heart, stop, durable=True)
    if step < config.steps:
        if metrics:
            metrics.finish(exit_code_of("stopped"))
        return "stopped"
    session.loader.close()
    _evaluate(session, step, reports.loss, heart, metrics)
    heart.beat(step, "done")
    return "finished"


def micro_batches(session: Session, step: int, heart: Heartbeat) -> Iterator[Windows]:
    """This rank's windows of one step, a micro-batch at a time."""
    for number in range(session.plan.accumulation):
        heart.beat(step, "data")
        with session.clock.waiting_for_data():
            windows = session.loader.read(step, number)
        yield windows


def _save(
    session: Session, step: int, reports: Reports, heart: Heartbeat, stop: StopWish, *, durable: bool
) -> None:
    """A checkpoint is written beside the training; when `durable`, it is on the disk."""
    reports.settle()
    heart.beat(step, "checkpoint")
    with stop.saving():
        session.save(step, reports.loss, durable=durable)


def _evaluate(
    session: Session, step: int, loss: float | None, heart: Heartbeat, metrics: Metrics | None
) -> None:
    """The scores, and the final record when all ranks are done."""
    with session.averaged(), session.autocast():
        scores = evaluate(
            session.operator, session.task.test, session.ranks, lambda: heart.beat(step, "eval")
        )
    session.ranks.wait_for_all()
    if metrics:
        print(scores, flush=True)
        known = scores.finite()
        wandb = asdict(metrics.finish(exit_code_of("finished"), known))
        record = {"step": step, "steps": session.config.steps, "loss": loss, "scores": known, "wandb": wandb}
        write_json(session.ranks.rank.box / layout.FINAL, record)
