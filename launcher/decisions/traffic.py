"""Traffic of a machine: its provider's counter, compared with vastrun's own measure. Pure functions."""

from __future__ import annotations

from dataclasses import dataclass, replace

from vastrun.launcher.core import BoxStatus, Instance, Run

GB = 1024**3
"""Bytes of a GB of traffic: Vast's price per TB is 1024 times that per GB."""
_LINE_SLACK = 2.0
"""Factor for a line that is faster than listed: listed speeds are of one measurement."""
_LATE_S = 10.0
"""Seconds for a rent that was noted late: its time is limited by the provider's, which is rounded."""
_UNKNOWN_MBPS = 10_000.0
"""Speed of a line in Mbit/s where none is listed."""
_MIN_SHARE = 0.01
"""Min. share of vastrun's own traffic that a counter shows: the next smaller unit would be 0.001 of it."""
_MIN_GB = 0.001


@dataclass(kw_only=True)
class TrafficMeasure:
    """GB into a machine and out of it by vastrun's own measure, as far as this launcher saw it."""

    down_gb: float = 0.0
    up_gb: float = 0.0
    """GB through vastrun's own connections: never more than was billed."""
    box_down_gb: float = 0.0
    box_up_gb: float = 0.0
    """GB through the interfaces of the machine, as its box reports them."""

    def sent(self, size: int) -> None:
        """Count bytes that were sent to the machine."""
        self.down_gb += size / GB

    def received(self, size: int) -> None:
        """Count bytes that came from the machine."""
        self.up_gb += size / GB

    def observe(self, status: BoxStatus) -> None:
        """Note the counters of the box's interfaces."""
        self.box_down_gb, self.box_up_gb = status.received_mb / 1024, status.sent_mb / 1024


def counter_fault(machine: Instance, own: TrafficMeasure, rented_s: float) -> str:
    """Describe why the provider's counter cannot be right; empty when it can. `rented_s`: age in seconds."""
    directions = (
        ("into", machine.down_gb, own.down_gb, machine.down_mbps),
        ("out of", machine.up_gb, own.up_gb, machine.up_mbps),
    )
    for way, counter_gb, own_gb, mbps in directions:
        max_gb = _LINE_SLACK * (mbps or _UNKNOWN_MBPS) / 8000 * (rented_s + _LATE_S)
        reads = f"the provider's counter of the traffic {way} the machine reads {counter_gb:,.3g} GB"
        if counter_gb > max_gb:
            return f"{reads}, more than the {max_gb:,.3g} GB that its line can have carried since the rent"
        if own_gb >= _MIN_GB and 0 < counter_gb < own_gb * _MIN_SHARE:
            return f"{reads}, and vastrun itself transferred {own_gb:,.3g} GB"
    return ""


def counted(machine: Instance, own: TrafficMeasure, *, is_doubted: bool) -> Instance:
    """Return the machine with the traffic that is charged: the counter's, unless it is doubted."""
    if not (machine.extras.down_usd_per_gb or machine.extras.up_usd_per_gb):
        return machine
    counter = (0.0, 0.0) if is_doubted else (machine.down_gb, machine.up_gb)
    return replace(machine, down_gb=max(counter[0], own.down_gb), up_gb=max(counter[1], own.up_gb))


def confirmed(run: Run, own: TrafficMeasure) -> Run:
    """Return the run without the traffic that only its provider's counter claims: no limit acts on that."""
    meter = run.meter
    down_gb = min(meter.down_gb, max(own.down_gb, own.box_down_gb))
    up_gb = min(meter.up_gb, max(own.up_gb, own.box_up_gb))
    if (down_gb, up_gb) == (meter.down_gb, meter.up_gb):
        return run
    return replace(run, meter=replace(meter, down_gb=down_gb, up_gb=up_gb))
