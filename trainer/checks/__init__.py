"""Checks: compare the ranks before their first step and every `check_every` steps.

They find faults that would not end a training, but make it worthless.
"""

from __future__ import annotations

from dataclasses import asdict, replace

import torch

from vastrun.trainer.checks.agreement import (
    check_facts,
    check_replicas,
    check_shares,
    digest,
    layout_of,
    share_of,
    windows_of,
)
from vastrun.trainer.engine.session import Session
from vastrun.trainer.models.own_model import OwnModel


def check_start(session: Session) -> None:
    """Check that the ranks train the same model, each on a different share of the next step.

    Raises DisagreementError or DataError.
    """
    ranks, step = session.ranks, session.start
    if ranks.rank.world_size == 1 or step >= session.config.steps:
        return
    # A difference in one of these is visible nowhere else, or hours later as a bad model.
    facts = {
        "the configuration": digest(asdict(session.config)),
        "the model": layout_of(session.operator),
        "the data": digest([asdict(order.space) for order in session.task_schedule.sample_plans]),
        "the steps done": str(step),
        "the version of torch": torch.__version__,
    }
    if isinstance(session.operator, OwnModel) and step == 0:
        facts["the initial weights"] = str(session.operator.initial_weights)
    check_facts(ranks, facts)
    for turn in range(session.task_schedule.turns):
        _check_turn(session, turn)


def _check_turn(session: Session, turn: int) -> None:
    """Check the shares of one turn of the next step."""
    place = session.task_schedule.place(session.start, turn * session.task_schedule.accumulation)
    order, task = session.task_schedule.sample_plans[place.task], session.tasks[place.task]
    # Not with the loader: its read-ahead begins with this micro-batch.
    read = task.batch(place.step, order.micro_batch_of(place.step, 0))
    share = share_of(order.share_of(place.step), read)
    plans = [replace(order, rank=rank) for rank in range(order.world_size)]
    windows = [window for plan in plans for window in windows_of(plan.share_of(place.step))]
    check_shares(place.step, session.ranks.all_gather_objects(share), windows)


def check_step(session: Session, step: int, loss: float | None) -> None:
    """Check after the first step and every `check_every` steps that the ranks hold the same values.

    Raises DisagreementError.
    """
    if session.ranks.rank.world_size == 1:
        return
    if step == session.start + 1 or step % session.config.check_every == 0:
        numbers = {
            "the number of the step": step,
            "the learning rate": session.schedule.rate(step - 1),
            "the loss": 0.0 if loss is None else loss,
        }
        check_replicas(session.ranks, step, session.operator, numbers)
