"""drive(run): the steps in the order of the phase table, until the run has ended."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace

from launcher.core import Cause, Phase, Run
from launcher.core.errors import (
    AuthError,
    BusyError,
    GoneError,
    HeldError,
    OutOfReachError,
    StorageError,
    VastrunError,
)
from launcher.core.job import JobSpec
from launcher.core.phases import BEFORE_TRAINING, NEXT, Result
from launcher.decisions import policy
from launcher.flow.context import End, OverError, Tools, Trip, lost, stopped
from launcher.flow.refused import Refused, identify
from launcher.flow.steps import STEPS


def begin(
    spec: JobSpec,
    spec_json: str,
    tools: Tools,
    *,
    run_id: str,
    out_dir: str,
    parent: str | None = None,
) -> Run:
    """A new run, with its row, in phase `plan`. Nothing was asked of the provider yet.

    Raises UsageError, and no row is written, when `out_dir` holds anything of others.
    """
    now = tools.clock.now()
    run = Run(
        id=run_id,
        job=spec.name,
        spec_json=spec_json,
        provider=tools.provider.name,
        phase=Phase.PLAN,
        out_dir=out_dir,
        created_at=now,
        phase_at=now,
        parent=parent,
        ledger=tools.ledger.id if tools.provider.shared else "",
    )
    tools.shelf.must_be_free(run)
    tools.ledger.add(run)
    return run


def drive(run: Run, spec: JobSpec, tools: Tools) -> Run:
    """The run, driven until it ended, was detached (in `train`) or could not be torn down (in `destroy`).

    Raises StorageError, HeldError, and AuthError where a machine is out of reach of this key. A run that has
    a machine then stands as it was, to be driven on, and the lease guards the machine.
    """
    trip = Trip(run, spec, tools)
    trip.hold()
    try:
        # Another launcher may have moved the run on before it let go. A new drive has all its tries again.
        trip.run = replace(tools.ledger.get(run.id), destroy_tries=0)
        while trip.run.phase is not Phase.ENDED and trip.run.destroy_tries < policy.DESTROY_TRIES:
            end = _take(trip)
            if end is None:
                break
            _advance(trip, end)
    finally:
        trip.hang_up()
        tools.ledger.release(run.id, tools.who)
    return trip.run


def _take(trip: Trip) -> End | None:
    """The end of the present step, whatever it raises. A fault of ours must not leave a machine rented."""
    phase = trip.run.phase
    try:
        return _step(trip)
    except OverError as over:
        return over.end
    except (HeldError, OutOfReachError):
        raise
    except StorageError as error:
        if phase is Phase.PLAN:
            _give_up(trip, error)
        raise
    except GoneError as error:
        if phase is not Phase.DESTROY and trip.is_gone():
            return lost(f"in phase {phase.value}")
        return End(result=Result.FAILED, cause=Cause.HOST, detail=str(error))
    except VastrunError as error:
        return End(result=Result.FAILED, cause=error.cause, detail=str(error))
    except Exception as error:  # noqa: BLE001 - the one place: see above
        detail = f"{type(error).__name__}: {error}"
        return End(result=Result.FAILED, cause=Cause.INTERNAL, detail=detail)


def _step(trip: Trip) -> End | None:
    """The end of the present step. It begins again while the provider refuses us."""
    phase, refused = trip.run.phase, Refused(trip)
    identify(trip)
    while True:
        if phase in BEFORE_TRAINING and trip.is_stopping():
            return stopped(f"before it could {phase.value}")
        try:
            return STEPS[phase](trip)
        except (AuthError, BusyError) as error:
            refused.wait(error)


def _give_up(trip: Trip, error: StorageError) -> None:
    """A run that has no machine and cannot be written down has ended: nobody needs to resume it."""
    with suppress(StorageError):
        trip.save(
            phase=Phase.ENDED,
            ended_at=trip.now(),
            cause=Cause.STORAGE,
            detail=str(error),
            failed_in=Phase.PLAN,
        )


def _advance(trip: Trip, end: End) -> None:
    """The row moves on as the table says; the first cause stays."""
    run, now = trip.run, trip.now()
    changes = {"phase": NEXT[run.phase][end.result], "phase_at": now}
    again = run.phase is Phase.DESTROY and end.result is not Result.OK
    if run.cause is None and end.cause is not None and run.phase is not Phase.DESTROY:
        changes |= {"cause": end.cause, "detail": end.detail, "failed_in": run.phase}
    if again:
        changes |= {"destroy_tries": run.destroy_tries + 1}
    if changes["phase"] is Phase.ENDED:
        changes |= {"ended_at": now}
    if end.result is not Result.OK:
        trip.tell(f"{end.result.value}: {end.detail}")
    trip.save(**changes)
    if again:
        trip.wait(min(60.0, 2.0**trip.run.destroy_tries))
