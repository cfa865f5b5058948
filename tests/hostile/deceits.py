"""Deceits: what the owner of a machine may do to a real box, each a script that its own program runs."""

import shlex
from collections.abc import Mapping
from dataclasses import dataclass

from tests.hostile.lie import STEERING
from vastrun.launcher.core import Cause


@dataclass(frozen=True, kw_only=True)
class Deceit:
    """A bash script, run in the box's folder once the training has begun."""

    script: str
    causes: frozenset[Cause | None]
    """How the run may end; None is a success."""
    spoils_log: bool = False
    """What the program printed need not come home."""
    late: bool = False
    """It is seen only when the training is over."""
    holds: bool = False
    """The machine would stay for ever: the launcher ends it at the job's limit."""


_ENDED_BY_US = frozenset({Cause.HOST, Cause.TIME_LIMIT})
_NO_PROOF = frozenset({Cause.HOST, Cause.UNPROVEN, Cause.CONTRADICTION, Cause.SIGNAL, Cause.USER_ERROR})
_GONE = frozenset({Cause.LOST, Cause.OUTPUTS_LOST})
_WELL = frozenset({None})

_KILL_LEASE = "kill -KILL $(sed -n s/^pid=//p lease.state)"
_RUNNING = (
    '{"now":%s,"box":"running","exit_code":null,"lease":"armed","lease_ends_at":9e9,"onstart_step":"50-train",'
    '"log_bytes":0,"free_mb":1,"supervisor":null}\\n'
)


def _status(body: str) -> str:
    """Looks at the box are answered by that script."""
    return f"printf '%s\\n' {shlex.quote(body)} >onstart/status.sh"


def _at_the_end(python: str) -> str:
    """That happens to the honest evidence, before anybody may look at it."""
    program = f"""\
import json, os, runpy
try:
    runpy.run_module("vastrun.onstart.honest", run_name="__main__")
except SystemExit:
    pass
def write(path, content):
    os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
    with open(path, "w") as file:
        file.write(content)
{python}
"""
    module = "pkg/vastrun/onstart/transfer/manifest.py"
    return f"mv {module} pkg/vastrun/onstart/honest.py; printf %s {shlex.quote(program)} >{module}"


def _session(line: str) -> str:
    """Every login begins with that line."""
    return f'sed -i 2i{shlex.quote(line)} "$HOME/../bin/session"'


def _trickle(pause_s: float) -> str:
    """Every file that is asked for comes byte by byte."""
    program = f"""\
import os, sys, time
left = int(sys.argv[1])
while left and (byte := os.read(0, 1)):
    os.write(1, byte)
    left -= 1
    time.sleep({pause_s})
"""
    ours = f'exec python3 -c {shlex.quote(program)} "$2"'
    head = f'#!/bin/bash\n[[ $1 == -c ]] || exec /usr/bin/head "$@"\n{ours}'
    return f'printf %s {shlex.quote(head)} >"$HOME/../bin/head"; chmod +x "$HOME/../bin/head"'


_LISTED = """
files = [
    ("run/.git/config", "[core]\\n\\tfsmonitor = touch evil"),
    ("run/.GITATTRIBUTES", "evil"),
    (".vastrun", "evil"),
    ("run/outputs/../../../evil", "evil"),
    ("/tmp/evil-of-a-box", "evil"),
    ("run/outputs/\\x1b]0;evil\\x07", "evil"),
]
manifest = json.load(open("run/manifest.json"))
for path, content in files[:3]:
    write(path, content)
for path, content in files:
    manifest["files"].append({"path": path, "size": len(content), "sha256": "0" * 64})
manifest["files"].append({"path": "run/outputs/large", "size": 10**15, "sha256": "0" * 64})
write("run/manifest.json", json.dumps(manifest))
"""

DECEITS: Mapping[str, Deceit] = {
    "status without an end": Deceit(script=_status("yes"), causes=_ENDED_BY_US),
    "status that never comes": Deceit(
        script=f"{_status('sleep 9999')}; {_KILL_LEASE}", causes=_ENDED_BY_US, holds=True
    ),
    "status of nonsense": Deceit(script=_status("echo '{\"now\": NaN}'"), causes=_ENDED_BY_US),
    "status of four hundred digits": Deceit(
        script=_status(f'echo \'{{"now": 1{"0" * 400}, "box": "running"}}\''), causes=_ENDED_BY_US
    ),
    "status that says running for ever": Deceit(
        script=f"{_status(f'printf {shlex.quote(_RUNNING)} $(date +%s)')}; {_KILL_LEASE}",
        causes=_ENDED_BY_US,
        holds=True,
    ),
    "lease that is killed and its beginning forged": Deceit(
        script=f"{_KILL_LEASE}; sed -i s/armed_at=.*/armed_at=9999999999/ lease.state", causes=_WELL
    ),
    "log that steers the terminal": Deceit(
        script=f"printf '%s\\n' {shlex.quote(STEERING)} >>run/run.log", causes=_WELL
    ),
    "step that steers the terminal": Deceit(
        script=f"printf %s {shlex.quote(STEERING)} >step", causes=_ENDED_BY_US
    ),
    "log that is a pipe": Deceit(
        script="mv run/run.log run/log; mkfifo run/run.log; exec 9<>run/run.log",
        causes=_ENDED_BY_US | _NO_PROOF | {Cause.HANG, None},
        spoils_log=True,
    ),
    "list of evil files": Deceit(late=True, script=_at_the_end(_LISTED), causes=_NO_PROOF),
    "list without an end": Deceit(
        late=True,
        script=_at_the_end('os.remove("run/manifest.json"); os.symlink("/dev/zero", "run/manifest.json")'),
        causes=_NO_PROOF,
    ),
    "outcome without an end": Deceit(
        late=True,
        script=_at_the_end('os.remove("run/outcome.json"); os.symlink("/dev/zero", "run/outcome.json")'),
        causes=_NO_PROOF,
    ),
    "outcome that is a pipe": Deceit(
        late=True,
        script=_at_the_end('os.remove("run/outcome.json"); os.mkfifo("run/outcome.json")'),
        causes=_NO_PROOF | _ENDED_BY_US,
    ),
    "outcome of wrong types": Deceit(
        late=True,
        script=_at_the_end(
            'write("run/outcome.json", json.dumps(json.load(open("run/outcome.json")) '
            '| {"detail": None, "checks": [{"name": "files", "holds": "maybe", "text": []}]}))'
        ),
        causes=_NO_PROOF,
    ),
    "output that is another file": Deceit(
        late=True,
        script=_at_the_end('os.remove("run/outcome.json"); os.symlink("/etc/passwd", "run/outcome.json")'),
        causes=_NO_PROOF,
    ),
    "files that trickle": Deceit(script=_trickle(0.05), causes=_ENDED_BY_US | _GONE),
    "files that come fast enough": Deceit(script=_trickle(0.0), causes=_WELL),
    "files of one byte": Deceit(script=_trickle(9999), causes=_ENDED_BY_US | _GONE),
    "greeting without an end": Deceit(script=_session("yes"), causes=_ENDED_BY_US | _GONE),
    "session that never begins": Deceit(
        script=f"{_KILL_LEASE}; {_session('sleep 9999')}", causes=_ENDED_BY_US, holds=True
    ),
}
