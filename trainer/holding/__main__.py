"""`python -m vastrun.trainer.holding hold|list|rent NAME|destroy NAME`, in the box of a held machine.

`hold` is its step 50-train. The others print one line of JSON; an order lies in `slots/.orders/NAME.json`.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

from vastrun.contract import layout
from vastrun.contract.records import read_json
from vastrun.trainer.holding.hold import hold
from vastrun.trainer.holding.machine import look_around
from vastrun.trainer.holding.slots import SlotAnswer, SlotOrder, destroy, listed, rent


def main(arguments: Sequence[str]) -> int:
    """Do what the first word says. Return the exit status."""
    box, verb = Path(os.environ["VASTRUN_BOX"]), arguments[0]
    if verb == "hold":
        return _hold(box)
    answer = _VERBS[verb](box, *arguments[1:])
    print(json.dumps(asdict(answer)))
    return 0


def _hold(box: Path) -> int:
    job = json.loads((box / layout.JOB).read_text(encoding="utf-8"))
    wanted = job["hold"]
    (box / layout.SLOTS).mkdir(exist_ok=True, mode=0o700)
    machine = look_around(wanted["slots"], job["gpus"], os.environ)
    machine.write(box)
    print(
        f"held for {machine.units} slots: {len(machine.cores)} cores, {machine.memory_mib / 1024:.0f} GiB, "
        f"{len(machine.gpus)} GPUs",
        flush=True,
    )
    return hold(box, wanted["idle_s"])


def _rent(box: Path, name: str) -> SlotAnswer:
    place = box / layout.SLOT_ORDERS / f"{name}.json"
    try:
        order = read_json(SlotOrder, place.read_text(encoding="utf-8"))
        assert order.name == name
        return rent(box, order, os.environ)
    finally:
        place.unlink(missing_ok=True)


_VERBS: Mapping[str, Callable[..., SlotAnswer]] = {"list": listed, "rent": _rent, "destroy": destroy}

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
