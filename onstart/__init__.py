"""Onstart: runs on the machine around any program: checks, downloads, supervision. Standard library only.

The scripts start its modules, which run with Python 3.10 and newer.
"""

import sys

if sys.version_info < (3, 10):  # noqa: UP036 - the launcher needs a newer one, not the machine
    sys.exit(f"vastrun needs Python 3.10 or newer on the machine, and this is {sys.version.split()[0]}")
