"""Data volumes in text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from vastrun.launcher.core import Volume
from vastrun.launcher.ui.render.amounts import duration, usd, usd_sum
from vastrun.launcher.ui.render.table import table

if TYPE_CHECKING:
    from vastrun.launcher.commands.volumes import VolumeState


def volume_states_text(states: Sequence[VolumeState], now: float) -> str:
    """Write the existing volumes, and the commands that delete long-unused ones."""
    if not states:
        return ""
    cells = [
        (
            state.volume.name,
            state.volume.host,
            f"{state.volume.gb:.0f}",
            usd(state.volume.usd_per_month),
            usd_sum([state.volume.cost_usd(now)]),
            duration(now - state.volume.used_at),
            _state(state, now),
        )
        for state in states
    ]
    header = ("VOLUME", "MACHINE", "GB", "$/MONTH", "COST", "LAST USED", "STATE")
    lines = [
        "data volumes, charged until they are deleted:",
        table(header, cells, right=(2, 3, 4, 5)),
        *(
            f"no run used {state.volume.name} for {duration(now - state.volume.used_at)}; "
            f"`vastrun reap --provider {state.volume.provider} --volume {state.volume.name}` deletes it and "
            "its data"
            for state in states
            if state.is_unused(now)
        ),
    ]
    return "\n".join(lines)


def _state(state: VolumeState, now: float) -> str:
    if state.listed is None:
        return "not listed"
    return "in use" if state.in_use else "unused" if state.is_unused(now) else "kept"


def volume_costs_text(volumes: Sequence[Volume], now: float) -> str:
    """Write the cost of each volume, with the total."""
    if not volumes:
        return ""
    costs = [volume.cost_usd(now) for volume in volumes]
    cells = [
        (
            volume.name,
            f"{volume.gb:.0f}",
            usd(volume.usd_per_month),
            usd_sum([cost]) + ("" if volume.deleted_at is not None else " so far"),
        )
        for volume, cost in zip(volumes, costs, strict=True)
    ]
    cells.append(("total", "", "", usd_sum(costs)))
    return table(("VOLUME", "GB", "$/MONTH", "COST"), cells, right=(1, 2, 3))
