"""Slot leases: run the lease script for a slot, which ends it before the machine's lease ends."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path

from vastrun.contract import layout

MARGIN_S = 30.0
"""Seconds before the end of the machine's lease at which a slot's lease has ended the slot."""
_START_S = 30.0
_END_S = 120.0
_STOP_SHARE = 5
"""Divisor of the lease's time: it asks for a stop at most this part before its end."""


def shorten_lease(
    env: Mapping[str, str], machine_left_s: float, environ: Mapping[str, str]
) -> dict[str, str]:
    """Return the changes that make a slot's lease end before the machine's; usually none."""
    life_s = float(env["LEASE_LIFE_S"])
    max_s = machine_left_s - MARGIN_S
    if life_s <= max_s:
        return {}
    return {
        "LEASE_LIFE_S": f"{max_s:.0f}",
        "LEASE_LIFE_CAUSE": environ.get("LEASE_LIFE_CAUSE", "time_limit"),
        "LEASE_SHIP_S": f"{min(float(env['LEASE_SHIP_S']), max_s):.0f}",
        "LEASE_GRACE_S": f"{min(float(env['LEASE_GRACE_S']), max_s / _STOP_SHARE):.0f}",
    }


def lease_left_s(box: Path) -> float:
    """Return the seconds until the end of the machine's lease; 0 if unknown."""
    try:
        lines = (box / layout.LEASE_STATE).read_text(encoding="utf-8").splitlines()
        facts = dict(line.split("=", 1) for line in lines if "=" in line)
        return max(0.0, float(facts["ends_at"]) - time.time())
    except (OSError, KeyError, ValueError):
        return 0.0


def arm(box: Path, name: str) -> None:
    """Start the slot's lease. Raises OSError, subprocess.SubprocessError."""
    subprocess.run(
        ["bash", str(box / layout.SLOT_SCRIPT), name, f"exec bash {layout.LEASE_SCRIPT}"],
        cwd=box,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        timeout=_START_S,
        start_new_session=True,
        check=True,
    )


def end(box: Path, instance_id: str, folder: Path) -> None:
    """End the slot like its lease. The provider is `pool`: the machine's provider would end the machine."""
    subprocess.run(
        ["bash", str(box / layout.ONSTART / layout.LEASE_SCRIPT), "end", instance_id, str(folder)],
        env={**os.environ, "VASTRUN_PROVIDER": "pool"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        timeout=_END_S,
        start_new_session=True,
        check=False,
    )
    if (folder / layout.SLOT_RECORD).exists():
        raise OSError(f"{folder} could not be removed")
