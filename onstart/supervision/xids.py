"""XIDs: the errors of GPUs that NVIDIA's driver reports, by NVML's events. Standard library only.

Unlike the kernel's log, which few containers show, NVML delivers them in a container, too.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from itertools import islice
from typing import Any

_XID_CRITICAL_ERROR = ctypes.c_ulonglong(8)
_MAX_EVENTS = 16


class _Event(ctypes.Structure):
    """NVML's `nvmlEventData_t`."""

    _fields_ = (("device", ctypes.c_void_p), ("type", ctypes.c_ulonglong), ("xid", ctypes.c_ulonglong))


def watch_xids(library: str) -> Callable[[], tuple[str, ...]]:
    """Have NVML collect XIDs from now on; return a function that lists them: `XID 79 on GPU 0`.

    Raises OSError where NVML is missing, or a call of it fails.
    """
    nvml = ctypes.CDLL(library)

    def call(name: str, *arguments: Any) -> None:
        if code := getattr(nvml, name)(*arguments):
            raise OSError(f"{name}: error {code}")

    count, events = ctypes.c_uint(), ctypes.c_void_p()
    call("nvmlInit_v2")
    call("nvmlDeviceGetCount_v2", ctypes.byref(count))
    call("nvmlEventSetCreate", ctypes.byref(events))
    gpus: dict[int | None, int] = {}
    for number in range(count.value):
        device = ctypes.c_void_p()
        call("nvmlDeviceGetHandleByIndex_v2", number, ctypes.byref(device))
        call("nvmlDeviceRegisterEvents", device, _XID_CRITICAL_ERROR, events)
        gpus[device.value] = number

    def next_xid() -> str:
        event = _Event()
        ended = nvml.nvmlEventSetWait(events, ctypes.byref(event), 0)
        return "" if ended else f"XID {event.xid} on GPU {gpus.get(event.device, '?')}"

    return lambda: tuple(islice(iter(next_xid, ""), _MAX_EVENTS))
