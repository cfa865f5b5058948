"""Say what a Python has: its version, and which of the modules named as arguments it lacks, as JSON.

It is run by the Python that is asked, which may be older than ours: standard library only, and no syntax or
type that Python 3.7 does not know.
"""

import importlib.util
import json
import sys


def lacking(names: "list[str]") -> "list[str]":
    """Return the modules that are not there. They are looked for, not imported: torch alone takes seconds."""
    return [name for name in names if importlib.util.find_spec(name) is None]


if __name__ == "__main__":
    print(json.dumps({"version": sys.version_info[:2], "missing": lacking(sys.argv[1:])}))
