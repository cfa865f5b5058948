"""Trace of a run: each Python with this folder on its path notes which functions of vastrun it calls.

In: `WALK_TRACE`, a file. Out: a line in it, the path of the module, when a process first calls a function.
What only an import calls is left out.
"""

import os
import sys
import threading
from pathlib import Path
from types import CodeType, FrameType

TRACE = os.environ.get("WALK_TRACE")
SEEN: set[CodeType] = set()


def note(frame: FrameType, event: str, _: object) -> None:
    code = frame.f_code
    if code in SEEN or ("/vastrun/" in code.co_filename and in_import(frame)):
        return
    SEEN.add(code)
    if TRACE and "/vastrun/" in code.co_filename:
        with Path(TRACE).open("a") as trace:
            trace.write(f"{code.co_filename}\n")


def in_import(frame: FrameType | None) -> bool:
    """Tell whether a module that is being imported made this call, or is it."""
    while frame and (frame.f_code.co_name != "<module>" or frame.f_globals["__name__"] == "__main__"):
        frame = frame.f_back
    return frame is not None


if TRACE:
    threading.settrace(note)
    sys.settrace(note)
