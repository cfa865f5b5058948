"""Steps of the phases ship, collect and destroy: upload code and data, download outputs, end the machine."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import TypeVar

from vastrun.contract import layout
from vastrun.contract.texts import how_many
from vastrun.launcher.core import Cause, DataContents, Instance, Phase, errors
from vastrun.launcher.core.left_out import left_out_text
from vastrun.launcher.core.phases import Result
from vastrun.launcher.decisions import policy
from vastrun.launcher.flow.context import RunContext
from vastrun.launcher.flow.lease_expiry import cancel_end, outputs_until
from vastrun.launcher.flow.node_sync import finish_nodes, remove_network
from vastrun.launcher.flow.retention import keep_for_weights
from vastrun.launcher.flow.run_end import assess
from vastrun.launcher.flow.run_state import OK, PhaseResult, RunStopped, failed
from vastrun.launcher.gate.box_reader import fetch_receipt

_T = TypeVar("_T")
_REPORT_S = 30.0
"""Seconds between two reports."""
_WAIT_S = 5.0
"""Seconds until a machine is asked again on which another run receives the same data."""
_TRIES = 3
"""Packs in a row that bring nothing, after which the machine is given up."""


def ship(context: RunContext) -> PhaseResult:
    """Upload the bundle and the secrets to the box, and unpack the bundle."""
    bundle = context.services.packer.pack(context.run, context.spec)
    secrets = context.secrets()

    def send() -> None:
        remote = context.remote()
        remote.put(bundle.path, layout.INBOX_BUNDLE)
        if secrets:
            remote.write(layout.INBOX_SECRETS, secrets, mode=0o600)
        # The checksum comes before tar, which would unpack a half; the mark that all is there comes last.
        done = remote.run(
            f"echo '{bundle.sha256}  {layout.INBOX_BUNDLE}' | sha256sum -c --quiet - && "
            f"tar -xzf {layout.INBOX_BUNDLE} && : >{layout.SHIPPED}",
            timeout_s=600.0,
        )
        if done.exit_code != 0:
            raise errors.ProviderError(
                f"the bundle cannot be unpacked on the machine: {done.stderr.strip()[-300:]}"
            )

    _retry_unreachable(context, send)
    context.report(f"{bundle.size / 1e6:.1f} MB")
    if (data := context.services.packer.data_contents(context.run, context.spec)) is not None:
        _retry_unreachable(
            context, lambda: send_data(context, data), progress=lambda: context.machines.traffic.down_gb
        )
    return OK


def send_data(context: RunContext, contents: DataContents) -> None:
    """Send what the machine lacks. An upload that was interrupted is continued where it ended."""
    began = reported_at = context.now()
    sent, min_left, failures = 0, math.inf, 0
    while (lacks := fetch_receipt(context.remote(), contents.sizes)).missing:
        left = sum(contents.sizes[index] for index in lacks.missing) - lacks.at
        if lacks.waits:
            text = "another run on this machine receives the same data"
        else:
            failures, min_left = (0, left) if left < min_left else (failures + 1, min_left)
            if failures == _TRIES:
                raise errors.ProviderError(
                    "the machine did not store the data that it was sent", cause=Cause.HOST
                )
            rate = sent / max(1e-3, context.now() - began)
            text = f"{left / 1e9:.3g} of {sum(contents.sizes) / 1e9:.3g} GB of data to send"
            text += f", {rate / 1e6:.3g} MB/s, {left / rate / 60:.0f} min left" if rate else ""
        if context.now() - reported_at >= _REPORT_S:
            reported_at = context.now()
            context.report(text)
        if lacks.waits:
            context.wait(_WAIT_S)
            continue
        path, size = context.services.packer.pack_data(context.run, context.spec, lacks)
        context.remote().put(path, layout.DATA_PACK)
        sent += size
    context.report(
        f"{sum(contents.sizes) / 1e6:.1f} MB of data are there, {sent / 1e6:.1f} MB of them sent now"
    )
    if contents.withheld:
        names = ", ".join((*contents.withheld[:3], *(["…"] if contents.withheld[3:] else [])))
        context.report(f"not sent, since they hold credentials: {names}")


def collect(context: RunContext) -> PhaseResult:
    """Download logs, checkpoints and outputs, check them, and assess the run for the last time."""
    collected = _retry_when_space(
        context,
        lambda: _retry_unreachable(
            context,
            lambda: context.services.output_store.collect(context.run, context.remote()),
            progress=lambda: context.machines.traffic.up_gb,
        ),
    )
    assessment = assess(context, collected.evidence)
    context.report(f"{how_many(collected.files, 'file')}, {collected.bytes / 1e6:.1f} MB")
    if collected.log_bytes_not_shown > 100_000:
        megabytes = collected.log_bytes_not_shown / 1e6
        context.report(f"the last {megabytes:.1f} MB of the log were not shown; log.txt has them")
    if left_out := left_out_text(collected.evidence.left_out):
        context.report(left_out)
    for path, name in collected.renamed.items():
        context.report(f"{path} was saved as {name}: another file has its name")
    if collected.evidence.left_out.weights:
        keep_for_weights(context, context.run.cause or assessment.cause)
        assessment = assess(context, collected.evidence)
    # The box may end itself soon. It need not hear of it: what counts is home.
    with suppress(errors.UnreachableError, errors.GoneError, RunStopped):
        context.remote().write(layout.COLLECTED, b"")
    result = Result.FAILED if collected.evidence.damaged else Result.OK
    return PhaseResult(result=result, cause=assessment.cause, detail=assessment.detail, node=assessment.node)


def destroy(context: RunContext) -> PhaseResult:
    """Destroy the run's machine, and have the provider confirm twice that it is gone."""
    context.disconnect()
    context.machines.refresh_meter()
    machine: Instance | None = None
    unknown: errors.VastrunError | None = None
    # For its bill: a machine whose id is known is destroyed also where the list failed.
    try:
        machine = context.machines.own()
    except (errors.ProviderError, errors.AuthError) as error:
        unknown = error
    machine_seen_at = context.now()
    # Also where the provider shows none, or cannot say: what it shows may be late.
    machine_id = machine.id if machine else context.run.instance_id
    if machine_id is not None:
        context.services.provider.destroy(machine_id)
    if unknown is not None:
        raise unknown
    if machine is not None and context.run.meter.given_back_at is None:
        # A computer that slept meanwhile cannot say when it ended: its lease may have ended it long ago.
        slept = context.now() - machine_seen_at > policy.LIMIT_SLACK_S
        # A disk that is full must not keep the launcher from the proof that the machine is gone.
        with suppress(errors.StorageError):
            # Its bill is known by its id, which is new where its order was denied and made all the same.
            meter = replace(context.run.meter, given_back_at=None if slept else context.now())
            context.save(instance_id=machine.id, meter=meter)
    looked_at = context.now()
    if not context.machines.has_none():
        return failed(None, "the machine still exists")
    _save_gone(context, machine, looked_at)
    if (end := finish_nodes(context)) is not None:
        return end
    remove_network(context)
    return OK


def _save_gone(context: RunContext, machine: Instance | None, looked_at: float) -> None:
    """Save that the run's machine is gone."""
    machine_id = machine.id if machine else context.run.instance_id
    keys, seen_at = context.services.provider.abilities.keys, context.machines.seen_at
    if keys is not None:  # also where the machine ended without us
        keys.forget(context.run.id)
    if machine_id is None:
        context.save(rented_at=None)
    else:
        cancel_end(context, machine_id)
        if context.run.offer is not None:
            life_s = policy.lease_of(context.spec, context.run.offer).life_s
            context.save(released_at=policy.released_at(context.run, life_s, looked_at, seen_at))
    context.report(
        "machine destroyed (confirmed twice)" if machine else "no machine exists (confirmed twice)"
    )


def _retry_when_space(context: RunContext, action: Callable[[], _T]) -> _T:
    """Return the result of `action`, retried while this computer's disk is full, as long as the lease
    allows.

    A box must not stay rented for the size of its list. A free one is kept instead.
    """
    while True:
        try:
            return action()
        except errors.NoRoomError as error:
            if context.services.provider.free:
                raise
            # Ends before the lease does: the machine is destroyed with its cause noted, not lost.
            until = outputs_until(context) - policy.DISK_POLL_S * 4
            context.report_no_space(error, f"free some space within {(until - context.now()) / 60:.0f} min")
            if context.now() > until:
                detail = f"no space on this computer for the outputs: {error}"
                raise RunStopped(failed(Cause.STORAGE, detail)) from error
            context.raise_if_stopped()
            context.wait(policy.DISK_POLL_S)


def _retry_unreachable(
    context: RunContext, action: Callable[[], _T], *, progress: Callable[[], float] = lambda: 0.0
) -> _T:
    """Return the result of `action`, retried while the box does not answer, as long as `progress` grows."""
    until, reached = _retry_until(context), progress()
    while True:
        try:
            result = action()
            context.machines.note_answer()
            return result
        except (errors.UnreachableError, errors.GoneError) as error:
            context.disconnect()
            if isinstance(error, errors.GoneError) and context.machines.is_gone():
                raise
            context.machines.note_silence(error)
            if progress() > reached:
                until, reached = _retry_until(context), progress()
            if context.now() > until:
                if context.run.phase is Phase.COLLECT:
                    raise RunStopped(failed(Cause.OUTPUTS_LOST, str(error))) from error
                raise
            context.wait(2.0)


def _retry_until(context: RunContext) -> float:
    """Return the end of the retries: earlier for a box that a limit ended, which costs more meanwhile."""
    until, run = context.now() + 300.0, context.run
    if run.cause not in (Cause.TIME_LIMIT, Cause.MONEY_LIMIT) or run.offer is None:
        return until
    ends_at = policy.lease_ends_at(run, policy.lease_of(context.spec, run.offer))
    return until if ends_at is None else min(until, ends_at + policy.LIMIT_SLACK_S)
