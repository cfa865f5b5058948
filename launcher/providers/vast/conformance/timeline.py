"""Timeline: what the rented machines' rows showed, by their ids and in the list, at each change."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from launcher.gate.text import one_line
from launcher.providers.vast.conformance.observations import LIST, by_id, number_of
from launcher.providers.vast.conformance.recorder import ApiRecorder, type_of
from launcher.providers.vast.instance_row import id_of, rows_in

Sample = Mapping[str, str | float]
MAX_SAMPLES, MAX_VALUES, _MAX_TEXT, _MAX_READ = 400, 20, 120, 4000
_COLUMNS = ("actual_status", "cur_state", "intended_status", "status_msg", "dph_base", "dph_total")
_ADDRESS = re.compile(r"\d{1,3}(?:\.\d{1,3}){3}|[0-9a-fA-F]{1,4}(?::[0-9a-fA-F]{0,4}){3,}")


def timeline(recorder: ApiRecorder) -> list[Sample]:
    """Return a sample for each change, oldest first, in seconds after the machine's order.

    None holds an address or a label.
    """
    places = {by_id(machine): "id" for machine in recorder.rented} | {LIST: "list"}
    samples, former = list[Sample](), dict[tuple[str, str], Sample]()
    asked = [o for o in recorder.exchanges if o.method == "GET" and o.path in places and o.fields]
    ordered_at = {str(one.fields.get("new_contract")): one.asked_at for one in recorder.exchanges}
    for one in asked:
        for row in rows_in(one.fields.get("instances")):
            machine, by = id_of(row) or "", places[one.path]
            sample = _sample(row) if machine in recorder.rented else {}
            if sample and former.get((machine, by)) != sample:
                former[machine, by] = sample
                after_s = round(one.asked_at - ordered_at.get(machine, one.asked_at), 1)
                samples.append({"after_s": after_s, "of": recorder.rented[machine], "by": by, **sample})
    return samples[:MAX_SAMPLES]


def _sample(row: Mapping[str, Any]) -> Sample:
    prices = row.get("instance")
    gpu_usd = prices.get("gpuCostPerHour") if isinstance(prices, dict) else None
    values = {name: row.get(name) for name in _COLUMNS} | {"gpu_usd_per_hour": gpu_usd}
    return {name: _value(value) for name, value in values.items()} | {"ports": type_of(row.get("ports"))}


def _value(value: Any) -> str | float:
    """Return a number, the last line of a text without addresses, or the type of anything else."""
    if isinstance(value, str):
        last = value[-_MAX_READ:].strip().rpartition("\n")[2]
        return one_line(_ADDRESS.sub("(address)", last))[:_MAX_TEXT]
    number = number_of(value)
    return type_of(value) if number is None else number
