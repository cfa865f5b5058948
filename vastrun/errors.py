"""The errors that vastrun raises, one tree below `VastrunError`: `except vastrun.errors.NoOfferError`.

Each has a message, a `hint` of what to try next, a `cause`, and the `exit_code` of the command line.
"""

from __future__ import annotations

try:
    from vastrun.launcher.core.errors import *  # noqa: F403
    from vastrun.launcher.core.errors import VastrunError
except ModuleNotFoundError as error:
    raise ImportError(
        "vastrun.errors needs the launcher, but vastrun is not installed in this Python"
    ) from error

__all__ = sorted(
    name
    for name, kind in list(globals().items())
    if isinstance(kind, type) and issubclass(kind, VastrunError)
)
