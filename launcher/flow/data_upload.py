"""Upload of a job's local data: pack by pack, until the machine lacks none of their contents."""

from __future__ import annotations

import math

from vastrun.contract import layout
from vastrun.launcher.core import Cause, DataContents
from vastrun.launcher.core.errors import ProviderError
from vastrun.launcher.flow.context import RunContext
from vastrun.launcher.flow.run_state import RunStopped
from vastrun.launcher.gate.box_reader import fetch_receipt

_REPORT_S = 30.0
"""Seconds between two reports."""
_WAIT_S = 5.0
"""Seconds until a machine is asked again on which another run receives the same data."""
_TRIES = 3
"""Packs in a row that bring nothing, after which the machine is given up."""


def send_data(context: RunContext, contents: DataContents) -> None:
    """Send what the machine lacks. An upload that was interrupted is continued where it ended."""
    began = reported_at = context.now()
    sent, least, failures = 0, math.inf, 0
    while (lacks := fetch_receipt(context.remote(), contents.sizes)).missing:
        if context.is_stopping():
            raise RunStopped(context.stopped("while its data were sent"))
        left = sum(contents.sizes[index] for index in lacks.missing) - lacks.at
        if lacks.waits:
            text = "another run on this machine receives the same data"
        else:
            failures, least = (0, left) if left < least else (failures + 1, least)
            if failures == _TRIES:
                raise ProviderError("the machine did not store the data that it was sent", cause=Cause.HOST)
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
