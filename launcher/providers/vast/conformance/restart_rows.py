"""What is assumed of a machine that is rebooted, stopped and started again: with `--restarts` only."""

from __future__ import annotations

from collections.abc import Mapping

from launcher.providers.vast.conformance.assumption import Assumption, When
from launcher.providers.vast.conformance.kinds import Within, Words
from launcher.providers.vast.conformance.looking import measured

RESTARTS: Mapping[str, Assumption] = {
    "reboot.answer": Assumption(
        text="a request to reboot",
        assumed=Words(("200 success",)),
        usual="200 success",
        look=measured("reboot.answer"),
        how="once, when the job has ended",
        rests="nothing: a user may do it in the console",
        optional=True,
    ),
    "reboot.seconds": Assumption(
        text="seconds until it runs again",
        assumed=Within(0, 120, "s"),
        usual=0.0,
        look=measured("reboot.seconds"),
        how="its row, asked for again and again",
        rests="stops.py: what is taken for a machine that was stopped",
        optional=True,
    ),
    "reboot.onstart": Assumption(
        text="onstart after a reboot",
        assumed=Words(("runs again",)),
        usual="runs again",
        look=measured("reboot.onstart"),
        how="a lease that is younger than the reboot",
        rests="onstart/rearm.sh: a machine that was rebooted still ends itself",
        optional=True,
    ),
    "stop.answer": Assumption(
        text="a request to stop",
        assumed=Words(("200 success",)),
        usual="200 success",
        look=measured("stop.answer"),
        how="once, after that",
        rests="nothing: a user may do it in the console",
        optional=True,
    ),
    "stop.seconds": Assumption(
        text="seconds until it no longer runs",
        assumed=Within(0, 60, "s"),
        usual=0.0,
        look=measured("stop.seconds"),
        how="its row, asked for again and again",
        rests="bills: a machine that is stopped costs its disk alone",
        optional=True,
    ),
    "stop.state": Assumption(
        text="actual_status of a machine that is stopped",
        assumed=Words(("exited", "stopped")),
        usual="exited",
        look=measured("stop.state"),
        how="its row, when it no longer runs",
        rests="stops.py: a machine that was stopped is told from one that loads",
        optional=True,
    ),
    "start.answer": Assumption(
        text="a request to start it again",
        assumed=Words(("200 success",)),
        usual="200 success",
        look=measured("start.answer"),
        how="once, while its GPUs are most likely still free",
        rests="nothing: vastrun never stops a machine to start it again",
        optional=True,
    ),
    "start.seconds": Assumption(
        text="seconds until it runs again",
        assumed=Within(0, 120, "s"),
        usual=0.0,
        look=measured("start.seconds"),
        how="its row, asked for again and again",
        rests="nothing: vastrun never stops a machine to start it again",
        optional=True,
    ),
    "charge.stopped": Assumption(
        text="what was charged for GPUs while it was stopped, to their price",
        assumed=Within(-0.5, 0.5, "times"),
        usual=0.0,
        look=measured("charge.stopped"),
        how="charges beside the ledger's, which counts that time in full",
        rests="bills: a machine that is stopped costs its disk alone",
        when=When.SETTLE,
        optional=True,
    ),
}
