"""`python -m vastrun.onstart.holding hold|list|rent NAME|destroy NAME`, in the box of a held machine.

`hold` is its step 50-train. The other commands print one line of JSON; `rent` reads its request from
`slots/.orders/NAME.json`.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

from vastrun.contract import layout
from vastrun.contract.records import read_json, write_json
from vastrun.onstart.holding.hold import hold
from vastrun.onstart.holding.machine import measure_machine
from vastrun.onstart.holding.slots import SlotRequest, SlotResponse, destroy, list_slots, rent


def main(arguments: Sequence[str]) -> int:
    """Run the command that the first argument names. Return the exit status."""
    box, verb = Path(os.environ["VASTRUN_BOX"]), arguments[0]
    if verb == "hold":
        job = json.loads((box / layout.JOB).read_text(encoding="utf-8"))
        options = job["hold"]
        (box / layout.SLOTS).mkdir(exist_ok=True, mode=0o700)
        machine = measure_machine(options["slots"], job["gpus"], os.environ)
        write_json(box / layout.HELD_MACHINE, vars(machine))
        print(
            f"held for {machine.units} slots: {len(machine.cores)} cores, "
            f"{machine.memory_mib / 1024:.0f} GiB, {len(machine.gpus)} GPUs",
            flush=True,
        )
        return hold(box, options["idle_s"])
    print(json.dumps(asdict(_VERBS[verb](box, *arguments[1:]))))
    return 0


def _rent(box: Path, name: str) -> SlotResponse:
    path = box / layout.SLOT_ORDERS / f"{name}.json"
    try:
        request = read_json(SlotRequest, path.read_text(encoding="utf-8"))
        assert request.name == name
        return rent(box, request, os.environ)
    finally:
        path.unlink(missing_ok=True)


_VERBS: Mapping[str, Callable[..., SlotResponse]] = {"list": list_slots, "rent": _rent, "destroy": destroy}

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
