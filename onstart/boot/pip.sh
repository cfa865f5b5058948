#!/bin/sh
# The `pip` of an overlay venv: that of the Python below it, which installs into the venv.
# In: pip's arguments; installed next to the venv's `python`, as pip and pip3. Out: pip's output and exit code.
exec "$(dirname "$0")/python" -m pip "$@"
