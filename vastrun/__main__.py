"""`python -m vastrun`: the command line, for an environment whose scripts are not on PATH."""

from __future__ import annotations

import sys

if __name__ == "__main__":
    try:
        from vastrun.launcher.cli import main
    except ModuleNotFoundError as error:
        # A machine has the package for its programs only.
        if error.name != "vastrun.launcher":
            raise
        sys.exit("vastrun: the launcher is not installed here: pip install vastrun")
    main()
