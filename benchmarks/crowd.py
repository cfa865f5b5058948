"""Crowd: twenty `vastrun launch` at once on one emulated Vast, which keeps its limits per key and address."""

from __future__ import annotations

import tempfile
import time
from collections import Counter
from pathlib import Path

from benchmarks.figures import Claim, max_limit, report_claims
from tests.e2e.market import LOADING, machines
from tests.e2e.terminal import Terminal
from tests.emulators.vast import VastEmulator

LAUNCHES = 20
NONE = max_limit(0)
_END_S = 1800.0
_JOB = """\
name: crowd
resources: {gpus: 0}
ranks: 1
limits: {hours: 1, usd: 1}
command: python -c "print('all is well')"
success: {log: "all is well"}
"""


def run() -> bool:
    """Print how they ended. True when all succeeded and none called too often."""
    began = time.monotonic()
    vast = VastEmulator(machines(LAUNCHES + 4), pace=LOADING)
    with tempfile.TemporaryDirectory(prefix="crowd-") as folder, vast:
        terminal = Terminal(Path(folder), **vast.variables)
        try:
            job = Path(folder) / "job.yaml"
            job.write_text(_JOB)
            words = ("launch", str(job), "--provider", "vast", "-y")
            launches = [terminal.start(*words) for _ in range(LAUNCHES)]
            codes = Counter(launch.end(within_s=_END_S).exit_code for launch in launches)
            ledger_usd = terminal.type("cost", "--json").json()["usd"]
        finally:
            terminal.clean()
        bill_usd, rentals = vast.billing.total_usd(), len(vast.billing.meters)
        took_s, left, refused = time.monotonic() - began, len(vast.instances), vast.limits.refused
        claims = [
            Claim(LAUNCHES - codes[0], "failed", NONE),
            Claim(left, "machines left", NONE),
            Claim(refused, f"of {len(vast.requests)} calls refused", NONE),
        ]
        summary = f"{LAUNCHES} launches at once in {took_s:.0f} s, {rentals} machines rented   n=1"
        print(f"ledger against bill      {ledger_usd / bill_usd - 1:+.2%}")
        return report_claims("crowd", summary, *claims)
