"""Training loop: set up, train step by step, save, validate, evaluate."""

import gc
import math
import time
from dataclasses import asdict
from functools import partial

from vastrun.contract import layout
from vastrun.contract.job import Job
from vastrun.contract.outcome import Reason
from vastrun.contract.records import write_json
from vastrun.trainer.checks import check_start, check_step
from vastrun.trainer.distributed.exit import exit_code_of
from vastrun.trainer.distributed.group import StopVote, join
from vastrun.trainer.distributed.rank import Heartbeat, Rank
from vastrun.trainer.distributed.signals import StopSignal
from vastrun.trainer.engine.current_stage import find_current_stage, record_result
from vastrun.trainer.engine.resume import resume_session
from vastrun.trainer.engine.session import Session
from vastrun.trainer.engine.session_builder import set_up
from vastrun.trainer.engine.step import train_step
from vastrun.trainer.evaluation import report
from vastrun.trainer.evaluation.report import evaluate_all
from vastrun.trainer.evaluation.rollouts import EvaluationStopped, beat_with_stop_vote
from vastrun.trainer.evaluation.validation import Validation, keep_better_state
from vastrun.trainer.job.config import TrainConfig
from vastrun.trainer.job.stage_config import missed_gate
from vastrun.trainer.telemetry.metrics import Metrics
from vastrun.trainer.telemetry.profiler import Profiler
from vastrun.trainer.telemetry.reports import Readings, Reports


def train(rank: Rank, job: Job, config: TrainConfig, heart: Heartbeat, stop: StopSignal) -> Reason:
    """Train this rank from set-up to final evaluation. Only rank 0 writes files."""
    with Profiler(rank, config, heart, stop) as profiler:
        if not rank.is_first:
            return _train(_set_up(rank, job, config, heart), heart, stop, profiler, None)
        with Metrics(rank.box, job, config) as metrics:
            return _train(_set_up(rank, job, config, heart), heart, stop, profiler, metrics)


def _set_up(rank: Rank, job: Job, config: TrainConfig, heart: Heartbeat) -> Session:
    """Build the session of the current stage, resume it, and check that all ranks agree on it."""
    ranks = join(rank, job)
    stage, found = find_current_stage(ranks, config)
    heart.first_step = stage.span.first_step
    session = set_up(ranks, job, config.of_stage(stage.span.name), stage)
    session = resume_session(session, found)
    check_start(session)
    session.log_start()
    return session


def _train(
    session: Session, heart: Heartbeat, stop: StopSignal, profiler: Profiler, metrics: Metrics | None
) -> Reason:
    config, step = session.config, session.start
    vote = StopVote(session.ranks, step)
    reports = Reports(session, metrics, Readings.of(session.ranks.device))
    if metrics:
        metrics.begin_at(step, session.wandb_id, session.stage)
    profiler.begin_at(session.stage.run_step(step))
    every = config.evaluate_every
    validation = Validation(session, partial(heart.beat, step, "eval")) if every else None
    nrmse, last = None, step >= config.steps
    while not last:
        started_at = time.monotonic()
        with profiler.step(session.stage.run_step(step)) as labelled:
            session.clock.begin()
            session, losses = train_step(session, step, labelled)
            session.clock.end()
        reports.add(step, losses)
        step += 1
        if step == session.start + 1:
            session.checkpoints.prepare(session.tensors())  # the optimiser's state exists from now on
        _collect_garbage(step, session.start)
        session.checkpoints.poll()
        last = step == config.steps or vote.passes(step, stop.asked)
        if last or step == session.start + 1 or step % config.log_every == 0:
            reports.report(step, losses)
        check_step(session, step, reports.loss)
        # A compiled model may compile again in any step.
        stop.step_s = time.monotonic() - started_at if config.compile == "off" else None
        nrmse = None
        if every and not last and step % every == 0:
            nrmse = _validate(validation, session, step, heart, stop, metrics)
        if not last and step % config.checkpoint_every == 0:
            reports.check_finite(step, losses)
            _save(session, step, reports, heart, stop, nrmse, durable=False)
    nrmse = _validate(validation, session, step, heart, stop, metrics) if step == config.steps else None
    _save(session, step, reports, heart, stop, nrmse, durable=True)
    if step < config.steps or not _evaluate(session, step, reports.loss, heart, stop, metrics):
        if metrics:
            metrics.finish(exit_code_of("stopped"))
        return "stopped"
    heart.beat(step, "done")
    return "finished"


def _collect_garbage(step: int, start: int) -> None:
    """Collect garbage at the same steps on all ranks, after `step` of a training that began after `start`.

    A rank that collects at another time makes the GPUs of all others wait for its part of the next
    collective. Objects of the first step live as long as the process, and are excluded from then on, like
    imported modules (trainer/train.py).
    """
    if step == start + 1:
        gc.disable()
        gc.collect()
        gc.freeze()
    elif step % 500 == 0:
        gc.collect()


def _validate(
    validation: Validation | None,
    session: Session,
    step: int,
    heart: Heartbeat,
    stop: StopSignal,
    metrics: Metrics | None,
) -> float | None:
    """Return the validation nRMSE; None when a rollout diverged or a stop was requested."""
    beat, stop_asked = partial(heart.beat, step, "eval"), lambda: stop.asked
    if step == session.config.steps:  # also when a former start was stopped before it chose
        keep_better_state(session, beat, stop_asked)
    if validation is None or step == session.start:
        return None
    try:
        found = validation.evaluate(session, beat, stop_asked)
    except EvaluationStopped:
        return None
    if metrics:
        metrics.validated(step, found.nrmse, found.scores)
    return found.nrmse if math.isfinite(found.nrmse) else None


def _save(
    session: Session,
    step: int,
    reports: Reports,
    heart: Heartbeat,
    stop: StopSignal,
    validation_nrmse: float | None,
    *,
    durable: bool,
) -> None:
    """Save a checkpoint while training continues; when `durable`, return once it is on the disk."""
    # A non-finite loss must be detected before its weights replace good ones.
    reports.flush()
    heart.beat(step, "checkpoint")
    with stop.saving():
        session.save(step, reports.loss, validation_nrmse=validation_nrmse, durable=durable)


def _evaluate(
    session: Session,
    step: int,
    loss: float | None,
    heart: Heartbeat,
    stop: StopSignal,
    metrics: Metrics | None,
) -> bool:
    """Write scores, report and final record. Returns False when a rank was asked to stop first."""
    session.loader.close()
    # From here on a stop may take longer than two training steps: a rollout is not interrupted.
    stop.step_s = None
    beat = partial(heart.beat, step, "eval")
    plots = session.config.plots
    if plots:
        report.preload_plots(session.ranks.rank)
    try:
        summary = evaluate_all(session, beat_with_stop_vote(session.ranks, beat, lambda: stop.asked))
    except EvaluationStopped:
        return False
    if metrics:
        summary.print_lines()
    stage, box = session.stage, session.ranks.rank.box
    run_step, label = stage.run_step(step), f" ({stage})" if stage.is_one_of_several else ""
    title = f"{session.job.name}, step {run_step}{label}"
    folder = box / layout.EVALUATION
    if stage.span.end_step < stage.total_steps:  # the last stage's is in the folder itself
        folder /= stage.span.name
    started_at = time.monotonic()
    pictures = summary.write(folder, title, session.ranks, plots=plots, beat=beat)
    if metrics:
        print(f"report.md and {len(pictures)} pictures: {time.monotonic() - started_at:.1f} s", flush=True)
        metrics.show(step, pictures)
        scores = summary.scores
        wandb = asdict(metrics.finish(exit_code_of("finished"), scores))
        record = {
            "step": run_step,
            "steps": stage.total_steps,
            "stage": stage.span.name,
            "loss": loss,
            "scores": scores,
            "missed": missed_gate(session.config.gate, stage.span.name, scores),
            "wandb": wandb,
        }
        write_json(box / layout.FINAL, record)
        if stage.is_one_of_several:
            gate, run_id = session.config.gate, session.job.run_id
            record_result(box, stage, gate, loss=loss, scores=scores, run_id=run_id)
    return True
