"""vastrun's trainer: everything that runs on the box, from the supervisor to the training loop.

The supervisor and the other modules of a `command:` job run with Python 3.9 and newer.
"""

import sys

if sys.version_info < (3, 9):  # noqa: UP036 - the launcher needs a newer one, not the machine
    sys.exit(f"vastrun needs Python 3.9 or newer on the machine, and this is {sys.version.split()[0]}")
if sys.version_info < (3, 10):  # noqa: UP036
    from vastrun.contract.older_python import patch_dataclass

    patch_dataclass()
