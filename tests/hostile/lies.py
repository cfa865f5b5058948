"""Lies: what a box may say that no honest box says. One table; a new field from outside has its row here."""

import json
import zlib
from collections.abc import Mapping
from dataclasses import replace

from tests.hostile.lie import (
    GOOD,
    MARKUP,
    RANKS,
    STEERING,
    Lie,
    chunk,
    endless,
    entry,
    failed_step,
    left_out,
    left_out_file,
    line,
    outcome,
    picture,
    says,
    supervisor,
    unarmed,
)
from vastrun.contract import layout

_FAILED = {"reason": "error", "ranks": [{"rank": 0, "exit_code": 1}, {"rank": 1, "exit_code": 1}]}
_CHECK = {"name": "files", "holds": False, "text": STEERING}
_NUMBERS = (
    "1e300",
    "-1e300",
    "5e-324",
    "NaN",
    "-Infinity",
    "9" * 400,
    "-0.0",
    "null",
    "true",
    '"<b>"',
    "[1]",
)
_IDLE = {
    "load": 0.3,
    "seconds": 400.0,
    "step": 3,
    "waits_for": "data",
    "data": 0.5,
    "disk": 0.0,
    "main_thread": 0.1,
    "cores": 0.2,
}
_READING = {
    "at": 1.8e9,
    "file_systems": [{"path": STEERING, "size": 10**15, "free": 10**15, "full_at": 1e11}],
    "memory": STEERING,
    "gpu_faults": [STEERING],
    "driver_cuda": STEERING,
    "reachable": [MARKUP],
    "unreachable": [STEERING],
    "processes": [{"pid": 2**32, "parent": 0, "name": STEERING}],
    "limits": [STEERING],
    "kernel_log": [STEERING],
}
_STEPS = ("0", "-1", "1e9", "9" * 30, "null", '"1"', "7")
_METRICS = b"".join(
    b'{"step": %s, "loss": %s, "validation_nrmse": %s, "<script>": 1}\n'
    % (step.encode(), loss.encode(), loss.encode())
    for step in _STEPS
    for loss in _NUMBERS
)
PNG = (
    b"\x89PNG\r\n\x1a\n"
    + chunk(b"IHDR", (2).to_bytes(4) + (2).to_bytes(4) + b"\x08\x00\x00\x00\x00")
    + chunk(b"IDAT", zlib.compress(b"\0\xff\0" * 2))
    + chunk(b"IEND", b"")
)
"""Two by two pixels."""
_HUGE = (60_000).to_bytes(4) * 2 + b"\x08\x00\x00\x00\x00"

LIES: Mapping[str, Lie] = {
    # What the box shows of its GPUs' memory before the job is shipped.
    "GPU memory that others hold": Lie(shown="gpu_used 23424, 24564\n"),
    "GPU memory beyond any number": Lie(shown=f"gpu_used {10**400}, {10**401}\n", harmless=True),
    "GPU memory below nothing": Lie(shown="gpu_used -1, nan\ngpu_used\ngpu_used ,\n", harmless=True),
    "GPU memory that steers": Lie(shown=f"gpu_used {STEERING}\n", harmless=True),
    # What the box says of its training while it runs.
    "step beyond any number": supervisor(step=2**63),
    "loss of four hundred digits": supervisor(loss=10**400),
    "clock of four hundred digits": says(now=10**400),
    "outcome with a loss of four hundred digits": outcome(last_loss=10**400),
    "step before the first": supervisor(step=-1),
    "step that is text": supervisor(step="ten"),
    "step that is a list": supervisor(step=[1]),
    "boasted steps": supervisor(step=10**11, steps=10**12),
    "loss that is text": supervisor(loss="low"),
    "loss that is a list": supervisor(loss=[0.5]),
    "ranks that are none": supervisor(ranks=[{"rank": "all"}, 3, None]),
    "more ranks than any machine has": supervisor(ranks=[{"rank": 0}] * 10_001),
    "ranks that are identical": supervisor(ranks=[{"rank": 0, "step": 3}] * 64),
    "GPUs that are idle for no reason on earth": supervisor(idle_gpus=_IDLE | {"waits_for": STEERING}),
    "GPUs that are idle beyond any number": supervisor(idle_gpus=_IDLE | {"seconds": 1e300, "load": -1}),
    "GPUs that are idle in words": supervisor(idle_gpus="yes"),
    "GPUs that are idle at a step of text": supervisor(idle_gpus=_IDLE | {"step": "ten"}),
    "outcome with GPUs that were idle in a steering way": outcome(idle_gpus=_IDLE | {"waits_for": MARKUP}),
    "outcome with GPUs that were busier than possible": outcome(idle_gpus=_IDLE | {"load": 7, "cores": 1e9}),
    "outcome with idle GPUs that are a list": outcome(idle_gpus=[1]),
    "outcome with a reading that steers": outcome(
        **_FAILED, detail="x", reading=_READING, printed_errors=[STEERING], nested_ranks=STEERING
    ),
    "outcome with a restored file that steers": outcome(restored={"step": 3, "read": MARKUP}),
    "outcome with a restored file that is a number": outcome(restored={"step": 3, "read": 7}),
    "outcome with a reading that is a list": outcome(**_FAILED, detail="x", reading=[1]),
    "outcome with a disk beyond any number": outcome(
        **_FAILED, detail="x", reading={"at": 1, "file_systems": [{"path": "/", "size": 1e300, "free": -1}]}
    ),
    "outcome with more processes than a reading has": outcome(
        **_FAILED, detail="x", reading={"at": 1.8e9, "processes": [{"pid": 1, "parent": 0, "name": "x"}] * 65}
    ),
    "outcome with limits that are a number": outcome(
        **_FAILED, detail="x", reading={"at": 1, "kernel_log": ["x"] * 17, "limits": 7}
    ),
    "outcome with more printed errors than ranks print": outcome(printed_errors=["Traceback"] * 101),
    "supervisor that is text": says(supervisor="fine"),
    "exit code that is text": says(exit_code="0"),
    "exit code beyond any number": says(exit_code=2**70),
    "state that does not exist": says(box="dancing"),
    "no state": Lie(status=lambda status: status.pop("box"), harmless=True),
    "lease that ends never": says(lease_ends_at=1e12),
    "lease that ends later each time": Lie(
        status=lambda status: status.update(lease_ends_at=status["now"] + 3600), harmless=True
    ),
    "lease that ends at no number": Lie(
        status=lambda status: status.update(lease_ends_at=float("nan")), harmless=True
    ),
    "lease that is dead again and again": says(lease="dead"),
    "lease that nobody armed": says(lease="none"),
    "lease that has ended": Lie(
        status=lambda status: status.update(lease_ends_at=status["now"] - 9999), harmless=True
    ),
    "clock that stands still": says(now=0.0),
    "clock that is text": says(now="noon"),
    "step name that steers": says(onstart_step=STEERING),
    "step name without an end": says(onstart_step="x" * 1_000_000),
    "step name with half a character": says(onstart_step="\ud800"),
    "step name like a notice": says(onstart_step="notified: failure"),
    "status that is nothing": Lie(printed="", harmless=True),
    "status that is no JSON": Lie(printed=STEERING, harmless=True),
    "status that is deep": Lie(printed="[" * 100_000, harmless=True),
    "status with a number of many digits": Lie(printed=f'{{"now": {"9" * 6000}}}', harmless=True),
    # Its log.
    "log that steers": Lie(files={layout.LOG: f"1.000 rank0 {STEERING}\n".encode()}, harmless=True),
    "log whose source steers": Lie(files={layout.LOG: b"1.000 \x1b[2J\xc2\x9b hello\n"}, harmless=True),
    "log that is markup": Lie(files={layout.LOG: f"1.000 rank0 Error: {MARKUP}\n".encode()}, harmless=True),
    "log of no text": Lie(files={layout.LOG: bytes(range(256)) * 20 + b"\n"}, harmless=True),
    "log without an end": Lie(files={layout.LOG: endless(b"1.000 rank0 x\n")}),
    "log in one line without an end": Lie(files={layout.LOG: endless(b"x")}),
    "log at the end of time": Lie(files={layout.LOG: b"9" * 400 + b".000 rank0 late\n"}, harmless=True),
    # Its evidence.
    "outcome without a detail": outcome(**_FAILED, detail=None),
    "outcome whose detail is a list": outcome(**_FAILED, detail=["why"]),
    "outcome whose detail is an object": outcome(**_FAILED, detail={"why": 1}),
    "outcome whose detail steers": outcome(**_FAILED, detail=STEERING),
    "outcome whose detail has half a character": outcome(**_FAILED, detail="\ud800"),
    "outcome whose detail is long": outcome(**_FAILED, detail="x" * 1_000_000),
    "outcome with a final record that is text": outcome(final_record="no"),
    "outcome with a condition that may hold": outcome(checks=[_CHECK | {"holds": "maybe"}]),
    "outcome with a condition that steers": outcome(checks=[_CHECK | {"name": STEERING}]),
    "outcome with a reason that does not exist": outcome(reason="magic"),
    "outcome that was pruned by nobody": outcome(reason="stopped", stop_cause="pruned"),
    "outcome with a stop at no time": outcome(stop_sent_at=1e300),
    "outcome with a stop that is text": outcome(stop_sent_at="soon", stop_sent_step=1),
    "outcome with a stop at a step before the first": outcome(stop_sent_at=1.8e9, stop_sent_step=-1),
    "outcome with a stop before the start": replace(
        outcome(stop_sent_at=0.0, stop_sent_step=10**12, stop_cause="time_limit"), harmless=True
    ),
    "step that was pruned by nobody": failed_step(exit_code=143, stop="pruned"),
    "outcome with steps beyond any number": outcome(steps_done=2**63),
    "outcome with a loss that is no number": Lie(
        files={layout.OUTCOME: json.dumps(GOOD | {"last_loss": float("nan")}).encode()}
    ),
    "outcome with ranks of another kind": outcome(ranks=[1, "two", None]),
    "outcome with too many ranks": outcome(ranks=[RANKS[0]] * 20_000),
    "outcome with a traceback that steers": outcome(
        **_FAILED, first_failure=RANKS[0] | {"exit_code": 1, "traceback": STEERING, "exception": STEERING}
    ),
    "manifest that leaves out in a steering way": Lie(
        files={layout.MANIFEST: left_out([{"path": STEERING, "why": MARKUP}], 10**9)}, harmless=True
    ),
    "manifest that leaves out without end": Lie(
        files={layout.MANIFEST: left_out([{"path": "x", "why": "y"}] * 10_000, 1)}
    ),
    "manifest that leaves out less than nothing": left_out_file(size=-1),
    "manifest that leaves out more than any disk": left_out_file(size=10**18),
    "manifest that leaves out a file of the user's": replace(
        left_out_file(path="../../etc/passwd.pt"), harmless=True
    ),
    "manifest that leaves out what is named by a number": left_out_file(named=2),
    "manifest that leaves out numbers": Lie(files={layout.MANIFEST: left_out([1], "many")}),
    "outcome with last lines that steer": outcome(
        **_FAILED, first_failure=RANKS[0] | {"exit_code": 2, "last_lines": f"{STEERING}\n{MARKUP}"}
    ),
    "outcome with last lines that are long": outcome(
        **_FAILED, first_failure=RANKS[0] | {"exit_code": 2, "last_lines": "x\n" * 1_000_000}
    ),
    "outcome with last lines that are a list": outcome(
        **_FAILED, first_failure=RANKS[0] | {"exit_code": 2, "last_lines": ["x"]}
    ),
    "outcome with packages that steer": outcome(packages={STEERING: STEERING, "torch": MARKUP}),
    "outcome with packages without end": outcome(packages={f"p{n}": "1" for n in range(6000)}),
    "outcome with packages that are a list": outcome(packages=["torch"]),
    "outcome with scores that are text": outcome(scores={"nrmse": "low"}),
    "outcome with scores that steer": outcome(scores={STEERING: 1.0}),
    "outcome with a start at no time": outcome(
        starts=[{"reason": "oom", "detail": STEERING, "world_size": 2, "started_at": 1e300, "ended_at": -1}]
    ),
    "outcome with stages that steer": outcome(
        stages=[
            {"name": STEERING, "steps_planned": 3, "scores": {STEERING: 1.0}, "run_id": STEERING},
            {"name": "refine", "steps_done": 10**12, "steps_planned": 0, "missed": STEERING},
        ]
    ),
    "outcome with stages at no time": outcome(stages=[{"name": "x", "steps_planned": 1, "seconds": -1e300}]),
    "outcome with stages without number": outcome(stages=[{"name": "x", "steps_planned": 1}] * 100_000),
    "outcome that is markup": outcome(
        **_FAILED, detail=MARKUP, scores={MARKUP: 1.0}, checks=[_CHECK | {"name": MARKUP, "text": MARKUP}]
    ),
    "outcome that hangs in markup": outcome(
        **_FAILED | {"reason": "hang"},
        hang={"rank": 0, "step": 1, "activity": MARKUP, "stalled_s": 60, "frame": MARKUP, "stacks": []},
    ),
    "outcome that is deep": Lie(files={layout.OUTCOME: b"[" * 100_000}),
    "outcome that is large": Lie(files={layout.OUTCOME: b"[" + b"0," * 6_000_000 + b"0]"}),
    "outcome that is nothing": Lie(files={layout.OUTCOME: b"null"}),
    "metrics of nothing that can be drawn": Lie(files={layout.METRICS: _METRICS}, harmless=True),
    "metrics of many lines": Lie(files={layout.METRICS: b"1\n" * 900_000}, harmless=True),
    "metrics without an end": Lie(files={layout.METRICS: endless(b'{"step": 1, "loss": 7.5}\n')}),
    "metrics in one line without an end": Lie(files={layout.METRICS: endless(b"x")}),
    "metrics that are others at each look": Lie(
        files={layout.METRICS: lambda offset, limit: (b'{"step": %d}\n' % offset * 9)[:limit]}
    ),
    "metrics whose steps go back and forth": Lie(
        files={layout.METRICS: b'{"step": 9, "loss": 1}\n{"step": 3, "loss": 2}\n' * 9000}, harmless=True
    ),
    "metrics that are cut within a line": Lie(files={layout.METRICS: b'{"step": 9, "lo'}, harmless=True),
    "metrics in one deep line": Lie(files={layout.METRICS: b"[" * 900_000}, harmless=True),
    "metrics whose names are markup": Lie(
        files={layout.METRICS: b"".join(line(n, **{MARKUP: n}) for n in range(9))}, harmless=True
    ),
    "metrics of many long names": Lie(
        files={layout.METRICS: line(1, **{f"{n}" * 50: n for n in range(900)})}, harmless=True
    ),
    "metrics of many lines that are long": Lie(
        files={layout.METRICS: line(1, loss=7.5, x="x" * 1000) * 30_000}, harmless=True
    ),
    "exit code in words": Lie(files={layout.EXIT: b"well\n"}, harmless=True),
    "exit code of many digits": Lie(files={layout.EXIT: b"9" * 5000}, harmless=True),
    "steps that are no steps": Lie(files={layout.STEPS: b"[]\n3\n" + b"{" * 90_000}, harmless=True),
    "step whose last line steers": failed_step(last_line=STEERING),
    "step whose last line is long": failed_step(last_line="x" * 100_000),
    "step whose last line is an object": failed_step(last_line={"why": 1}),
    "step whose last line has half a character": failed_step(last_line="\ud800"),
    "environment that failed and steers": failed_step(
        step="00-environment", exit_code=78, last_line=STEERING
    ),
    "environment that failed after the other steps": Lie(
        files={
            layout.STEPS: b'{"step": "50-train", "exit_code": 0, "seconds": 1.0}\n'
            b'{"step": "00-environment", "exit_code": 78, "seconds": 1e300, "last_line": ["old"]}\n',
            layout.OUTCOME: b"",
        }
    ),
    "environment with an exit code in words": failed_step(step="00-environment", exit_code="old"),
    "environment that failed beside a good outcome": Lie(
        files={layout.STEPS: b'{"step": "00-environment", "exit_code": 78, "seconds": 1.0}\n'}, harmless=True
    ),
    "download that blames the job and steers": failed_step(
        step="38-download", exit_code=65, last_line=STEERING
    ),
    "download that blames nobody": failed_step(step="38-download", exit_code=2**31 - 1),
    "download that failed beside a good outcome": Lie(
        files={layout.STEPS: b'{"step": "38-download", "exit_code": 65, "seconds": 1.0}\n'}, harmless=True
    ),
    "steps that are large": Lie(files={layout.STEPS: b'{"step": "x"}\n' * 900_000}, harmless=True),
    # The list of its files.
    "file of no size on earth": entry("run/outputs/a", size=10**18),
    "file larger than its disk": entry("run/outputs/a", size=10**12),
    "file of negative size": entry("run/outputs/a", size=-1),
    "file with a size that is text": entry("run/outputs/a", size="4"),
    "file with a checksum that is a path": entry("run/outputs/a", sha256="../../../../evil"),
    "file whose path is a number": entry("run/outputs/a", path=3),
    "file that is not what is listed": entry("run/outputs/a", sha256="0" * 64),
    "path that is absolute": entry("/etc/evil"),
    "path that is absolute twice": entry("//etc/passwd"),
    "path that is absolute below run": entry("run//etc/evil"),
    "path that leads out": entry("run/../../../evil"),
    "path of what is on its way": entry(".incoming"),
    "path below what is on its way": entry("run/.incoming/x"),
    "path of what a command fetches": entry("run/.pulling/x"),
    "path of our own mark": entry("run/.vastrun"),
    "path that is a folder": entry("run/checkpoints"),
    "path of the folder itself": entry("run"),
    "path below the outcome": entry("run/outcome.json/x"),
    "paths of many folders": Lie(
        listed=tuple(entry(f"run/outputs/{n}/{'a/' * 500}x").listed[0] for n in range(1500))
    ),
    "path with a zero": entry("run/outputs/a\0b"),
    "path that is too long": entry("run/outputs/" + "d/" * 900 + "a"),
    "name that is too long": entry("run/outputs/" + "a" * 300),
    "name that steers": entry("run/outputs/\x1b[2J\u202e"),
    "name with half a character": entry("run/outputs/\ud800"),
    "git settings": entry("run/.git/config", b"[core]\n\tfsmonitor = touch evil\n"),
    "git settings in capitals": entry("code/.GIT/config"),
    "git attributes": entry("run/outputs/.gitattributes"),
    "git ignores nothing": entry("run/.gitignore"),
    "file and folder of one name": Lie(
        files={"run/outputs/a": b"evil", "run/outputs/a/b": b"evil"},
        listed=(*entry("run/outputs/a").listed, *entry("run/outputs/a/b").listed),
    ),
    "list that is no list": Lie(files={layout.MANIFEST: b'{"files": {}}'}),
    "list that is large": Lie(files={layout.MANIFEST: b'{"files": [' + b"{}," * 6_000_000 + b"{}]}"}),
    "list of many files": Lie(files={layout.MANIFEST: b'{"files": [' + b"{}," * 100_000 + b"{}]}"}),
    # Its pictures.
    "picture that is SVG": picture(b'<svg xmlns="http://www.w3.org/2000/svg" onload="alert(1)"/>'),
    "picture that is a page": picture(f"<!doctype html>{MARKUP}".encode()),
    "picture with a page behind it": picture(PNG + MARKUP.encode()),
    "picture with a text in it": picture(PNG[:-12] + chunk(b"tEXt", MARKUP.encode()) + PNG[-12:]),
    "picture without an end": picture(PNG[:-12]),
    "picture of no size on earth": picture(PNG[:8] + chunk(b"IHDR", _HUGE) + PNG[33:]),
    "picture that is large": picture(PNG[:-12] + chunk(b"IDAT", bytes(2 << 20)) + PNG[-12:]),
    "picture whose name is markup": picture(PNG, "a'\"><b onclick=evil>.png"),
    "file that is larger than this computer's disk": entry("run/outputs/large", size=99 * 10**9),
    # Its lease, before anything was shipped.
    "lease of no state": Lie(files={layout.LEASE_STATE: f"state={STEERING}\n".encode()}, harmless=True),
    "lease that is large": Lie(files={layout.LEASE_STATE: b"state=armed\n" * 100_000}, harmless=True),
    "program that is steering": unarmed(f"{STEERING}: not found\n".encode()),
    "programs without an end": unarmed(b"sh: 6: gzip: not found\n" * 100_000),
    "program of any name": unarmed(b"bash: line 6: " + b"a" * 60_000 + b": command not found\n"),
}  # fmt: skip
