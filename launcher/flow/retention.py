"""Retention: files that look like weights are downloaded if they are small, else their machine is kept.

To keep a machine costs more than to download a file that was not asked for.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import suppress

from vastrun.contract import layout
from vastrun.contract.texts import how_many
from vastrun.launcher.core import Cause, KeepAnswer, LeftOutFile, LeftOutFiles
from vastrun.launcher.core.errors import EndedError, GoneError, NoRoomError, ProviderError
from vastrun.launcher.core.left_out import bytes_text, file_text
from vastrun.launcher.decisions import policy
from vastrun.launcher.decisions.deadlines import moment_text
from vastrun.launcher.flow.context import RunContext
from vastrun.launcher.flow.lease_expiry import outputs_until
from vastrun.launcher.flow.run_state import RunStopped

_POLL_S = 5.0
_MAX_NAMED = 5
_SMALL_BYTES = 100e6
_SMALL_FILES = 10
"""Bytes and number of all these files together that are downloaded without being asked for."""
_EXCLUDED_CAUSES = (Cause.PRUNED, Cause.PREEMPTED)
"""Causes for which the machine is destroyed at once."""


def keep_for_weights(context: RunContext, cause: Cause | None) -> None:
    """Download small files that look like weights, and wait while others are only on the machine.

    Ends when they are downloaded, at the time that the policy says, at a limit, when the user stops the run,
    and when the machine is gone. How the run ended does not change.
    """
    weights = context.services.output_store.left_out(context.run).weights
    if not weights or cause in _EXCLUDED_CAUSES:
        return
    until = policy.keep_until(context.spec, context.run, outputs_until(context))
    with suppress(RunStopped):
        context.raise_if_stopped()
        if context.now() >= until:
            return
        if len(weights) <= _SMALL_FILES and sum(file.size for file in weights) <= _SMALL_BYTES:
            _download(context, {file.path: file.size for file in weights})
            weights = context.services.output_store.left_out(context.run).weights
            if not weights:
                return
            context.raise_if_stopped()
        context.report(_text_of(context, LeftOutFiles(files=weights, count=len(weights)), until))
        # A run that was stopped is collected, too: only a request after that is about its files.
        before = context.user_request()
        if not _ask(context, weights, until):
            return
        while context.now() < until:
            context.raise_if_stopped()
            if not context.services.output_store.left_out(context.run).weights:
                context.report("all files that look like weights are downloaded")
                return
            request = context.user_request()
            if request is not before and request.cause is not None:
                return
            if not _is_there(context):
                context.report("the machine is gone, with the files that were left on it")
                return
            context.wait(_POLL_S)


def _ask(context: RunContext, weights: Sequence[LeftOutFile], until: float) -> bool:
    """Ask the user, if there is a terminal; return False to destroy the machine now."""
    if not context.nodes.is_alone:  # each node has a thread, and the terminal takes one question
        return True
    before = context.user_request()
    size = bytes_text(sum(file.size for file in weights))
    count = how_many(len(weights), "file")
    answer = context.services.ask_to_keep(
        f"{count} ({size})",
        lambda: context.now() >= until or context.user_request() is not before,
    )
    if answer is KeepAnswer.DOWNLOAD:
        _download(context, {None: math.inf})
    return answer is not KeepAnswer.GIVE_BACK


def _download(context: RunContext, max_bytes: Mapping[str | None, float]) -> None:
    """Download files that were left out, by path, None: all of them. A failure is reported, and they can be
    pulled. `max_bytes`: limit for what the machine sends at each path.
    """
    store = context.services.output_store
    try:
        fetched = [
            store.fetch(context.run, context.remote(), path, max_bytes=limit)
            for path, limit in max_bytes.items()
        ]
    except (ProviderError, NoRoomError) as error:
        context.disconnect()
        context.report(f"the files could not be downloaded: {error}")
        return
    count, size = sum(each.files for each in fetched), sum(each.bytes for each in fetched)
    context.report(f"{how_many(count, 'more file')}, not named in outputs: {bytes_text(size)}")
    if damaged := [path for each in fetched for path in each.damaged]:
        context.report(f"not downloaded whole: {', '.join(damaged[:_MAX_NAMED])}")


def _is_there(context: RunContext) -> bool:
    """Tell whether the machine still exists; one that does not answer does."""
    try:
        context.remote().read(layout.EXIT, limit=1)
    except EndedError:
        return False
    except GoneError:
        context.disconnect()
        return not context.machines.is_gone()
    except ProviderError:
        context.disconnect()
    return True


def _text_of(context: RunContext, weights: LeftOutFiles, until: float) -> str:
    run_id = context.run.leader or context.run.id
    named = ", ".join(file_text(file) for file in weights.files[:_MAX_NAMED])
    more = ", ..." if weights.count > _MAX_NAMED else ""
    size = bytes_text(sum(file.size for file in weights.files))
    minutes = (until - context.now()) / 60
    return (
        f"these look like weights and are only on the machine ({size}): {named}{more}. "
        f"It is kept for {minutes:.0f} min, until {moment_text(context.spec, until)}"
        f"{'' if context.spec.limits.deadline else ' UTC'}; "
        f"to download them: vastrun pull {run_id} PATH; to destroy it now: vastrun stop {run_id}"
    )
