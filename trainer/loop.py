"""The loop: set up in the one right order, train step by step, save, evaluate, leave."""

from __future__ import annotations

import math
from dataclasses import asdict

from torch import Tensor
from torch.nn.utils import clip_grad_norm_

from trainer import layout
from trainer.config import TrainConfig
from trainer.dist import StopVote
from trainer.ending import exit_code_of
from trainer.evaluate import Scores, evaluate
from trainer.heartbeat import Heartbeat
from trainer.metrics import Metrics, Point, Rate
from trainer.optim import learning_rate, set_learning_rate
from trainer.outcome import Reason
from trainer.rank import Rank, TrainJob
from trainer.records import write_json
from trainer.sampler import picks
from trainer.setup import Setup, set_up
from trainer.signals import StopWish


class DivergedError(Exception):
    """The loss is no longer a number: more steps would only cost."""


def train(rank: Rank, job: TrainJob, config: TrainConfig, heart: Heartbeat, stop: StopWish) -> Reason:
    """This rank's part of the training, from its set-up to its end. Only rank 0 writes."""
    if not rank.is_first:
        return _train(set_up(rank, job, config), job, heart, stop, None)
    with Metrics(rank.box, job, config) as metrics:
        return _train(set_up(rank, job, config), job, heart, stop, metrics)


def _train(run: Setup, job: TrainJob, heart: Heartbeat, stop: StopWish, metrics: Metrics | None) -> Reason:
    config, step, loss = run.config, run.start, run.loss
    vote, rate = StopVote(run.ranks, step), Rate(config.batch, step)
    if metrics:
        metrics.begin_at(step)
    while step < config.steps:
        losses = _step(run, step, heart)
        step += 1
        if step == run.start + 1:
            run.ranks.limit_waits(job.stall_s)
        if step == run.start + 1 or step % config.log_every == 0 or step == config.steps:
            loss = _report(run, step, losses, rate, metrics)
        stopping = step < config.steps and vote.passes(step, stop.asked)
        if stopping or step % config.checkpoint_every == 0 or step == config.steps:
            _save(run, step, loss, heart, stop)
        if stopping:
            if metrics:
                metrics.finish(exit_code_of("stopped"))
            return "stopped"
    heart.beat(step, "eval")
    scores = evaluate(run.operator, run.task.test, run.ranks, lambda: heart.beat(step, "eval"))
    run.ranks.wait_for_all()
    if metrics:
        _write_final(run, step, loss, scores, metrics)
    heart.beat(step, "done")
    return "finished"


def _step(run: Setup, step: int, heart: Heartbeat) -> tuple[Tensor, Tensor]:
    """One optimiser step: (loss on this rank's share, norm of the gradient), still on the device."""
    config, rank = run.config, run.ranks.rank
    heart.beat(step, "data")
    chosen = picks(config.seed, step, batch=config.batch, noise=config.noise, space=run.space)
    windows = run.task.batch(step, chosen.share(rank.rank, rank.world_size))
    heart.beat(step, "forward")
    loss = run.model(windows)
    heart.beat(step, "backward")
    run.optimizer.zero_grad()
    loss.backward()
    heart.beat(step, "optimizer")
    norm = clip_grad_norm_(run.model.parameters(), config.optim.clip)
    set_learning_rate(run.optimizer, learning_rate(step, config.steps, config.optim))
    run.optimizer.step()
    return loss.detach(), norm


def _report(
    run: Setup, step: int, losses: tuple[Tensor, Tensor], rate: Rate, metrics: Metrics | None
) -> float:
    """The mean loss over all ranks, told to the world. The only place where the host waits for the device."""
    loss, grad_norm = run.ranks.mean_of(*losses)
    if metrics:
        lr = learning_rate(step - 1, run.config.steps, run.config.optim)
        point = Point(step=step, loss=loss, lr=lr, grad_norm=grad_norm, samples_per_s=rate.at(step))
        metrics.add(point)
    if not math.isfinite(loss):
        raise DivergedError(f"the loss is {loss} at step {step}")
    return loss


def _save(run: Setup, step: int, loss: float | None, heart: Heartbeat, stop: StopWish) -> None:
    """A checkpoint is on disk. All ranks wait for it, so that none takes a slow disk for a dead rank 0."""
    heart.beat(step, "checkpoint")
    with stop.saving():
        if run.ranks.rank.is_first:
            path = run.checkpoints.save(step, run.state(step, loss))
            print(f"checkpoint {path.name} saved", flush=True)
        run.ranks.wait_for_all()


def _write_final(run: Setup, step: int, loss: float | None, scores: Scores, metrics: Metrics) -> None:
    print(scores, flush=True)
    wandb = metrics.finish(exit_code_of("finished"), scores.finite())
    record = {
        "step": step,
        "steps": run.config.steps,
        "loss": loss,
        "scores": scores.finite(),
        "wandb": asdict(wandb),
    }
    write_json(run.ranks.rank.box / layout.FINAL, record)
