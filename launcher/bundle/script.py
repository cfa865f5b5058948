"""Script: what `command:` gives to bash is read by bash before it is shipped."""

from __future__ import annotations

import os
import subprocess

from vastrun.launcher.config.command import script_of
from vastrun.launcher.core.errors import JobValueError
from vastrun.launcher.core.job import JobSpec

_TIMEOUT_S = 10.0


def check_script(spec: JobSpec) -> None:
    """Raise JobValueError when bash cannot parse the script; skip the check without bash."""
    script = script_of(spec.command or ())
    if script is None:
        return
    try:
        # -n: nothing of it is run.
        read = subprocess.run(
            ["bash", "--noprofile", "--norc", "-n", "-s"],
            input=script.encode(),
            capture_output=True,
            env={"PATH": os.defpath},
            timeout=_TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return
    if read.returncode:
        lines = read.stderr.decode(errors="replace").strip().splitlines()
        fault = lines[0].removeprefix("bash: ") if lines else f"exit code {read.returncode}"
        raise JobValueError(
            f"command: bash cannot read the script: {fault}",
            hint="quote what is meant literally; a list is run without a shell: [python, a.py]",
        )
