"""The loop: set up in the one right order, train step by step, save, evaluate, leave."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import asdict

from torch import Tensor

from trainer import layout
from trainer.config import TrainConfig
from trainer.data.trajectories import Windows
from trainer.dist import StopVote, join
from trainer.ending import exit_code_of
from trainer.evaluate import evaluate
from trainer.heartbeat import Heartbeat
from trainer.metrics import Metrics, Point, Rate
from trainer.outcome import Reason
from trainer.rank import Rank, TrainJob
from trainer.records import write_json
from trainer.sampler import picks
from trainer.session import Session, set_up
from trainer.signals import StopWish
from trainer.step import take_step


class DivergedError(Exception):
    """The loss is no longer a number: more steps would only cost."""


def train(rank: Rank, job: TrainJob, config: TrainConfig, heart: Heartbeat, stop: StopWish) -> Reason:
    """This rank's part of the training, from its set-up to its end. Only rank 0 writes."""
    if not rank.is_first:
        return _train(set_up(join(rank, job), config), job, heart, stop, None)
    with Metrics(rank.box, job, config) as metrics:
        return _train(set_up(join(rank, job), config), job, heart, stop, metrics)


def _train(
    session: Session, job: TrainJob, heart: Heartbeat, stop: StopWish, metrics: Metrics | None
) -> Reason:
    config, step, loss = session.config, session.start, session.loss
    vote, rate = StopVote(session.ranks, step), Rate(config.batch, step)
    if metrics:
        metrics.begin_at(step)
    last = step >= config.steps
    while not last:
        losses = take_step(session, step, _micro_batches(session, step, heart), heart)
        step += 1
        if step == session.start + 1:
            session.ranks.limit_waits(job.stall_s)
        last = step == config.steps or vote.passes(step, stop.asked)
        if last or step == session.start + 1 or step % config.log_every == 0:
            loss = _report(session, step, losses, rate, metrics)
        if not last and step % config.checkpoint_every == 0:
            _save(session, step, loss, heart, stop)
    _save(session, step, loss, heart, stop)
    if step < config.steps:
        if metrics:
            metrics.finish(exit_code_of("stopped"))
        return "stopped"
    _evaluate(session, step, loss, heart, metrics)
    heart.beat(step, "done")
    return "finished"


def _micro_batches(session: Session, step: int, heart: Heartbeat) -> Iterator[Windows]:
    """This rank's windows of one step, a micro-batch at a time."""
    config, plan, rank = session.config, session.plan, session.ranks.rank
    heart.beat(step, "data")
    chosen = picks(config.seed, step, batch=config.batch, noise=config.noise, space=session.space)
    share = chosen.share(rank.rank, rank.world_size)
    for number in range(plan.accumulation):
        heart.beat(step, "data")
        yield session.task.batch(step, share.share(number, plan.accumulation))


def _report(
    session: Session, step: int, losses: tuple[Tensor, Tensor], rate: Rate, metrics: Metrics | None
) -> float:
    """The mean loss over all ranks, told to the world. The only place where the host waits for the device."""
    loss, grad_norm = session.ranks.mean_of(*losses)
    if metrics:
        lr = session.schedule.rate(step - 1)
        point = Point(step=step, loss=loss, lr=lr, grad_norm=grad_norm, samples_per_s=rate.at(step))
        metrics.add(point)
    if not math.isfinite(loss):
        raise DivergedError(f"the loss is {loss} at step {step}")
    session.schedule.observe(step, loss)
    return loss


def _save(session: Session, step: int, loss: float | None, heart: Heartbeat, stop: StopWish) -> None:
    """A checkpoint is on disk. All ranks wait for it, so that none takes a slow disk for a dead rank 0."""
    heart.beat(step, "checkpoint")
    with stop.saving():
        if session.ranks.rank.is_first:
            path = session.checkpoints.save(step, session.state(step, loss))
            print(f"checkpoint {path.name} saved", flush=True)
        session.ranks.wait_for_all()


def _evaluate(
    session: Session, step: int, loss: float | None, heart: Heartbeat, metrics: Metrics | None
) -> None:
    """The scores, and the final record when all ranks are done."""
    with session.ema.in_use() if session.ema else nullcontext(), session.autocast():
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
