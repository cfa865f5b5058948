"""Chaos with nodes: runs on several boxes of this computer, each with a trouble, and what they left.

Launchers, ranks, supervisors and whole machines are killed. Nothing may be left or rented twice, no log may
lose a line or have one twice, and every verdict must be the right one and name the node that failed first.
"""

import contextlib
import random
import re
import signal
import subprocess
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from tests.e2e.terminal import STUB_TORCH, Launch, Terminal
from vastrun.contract import layout
from vastrun.launcher.package_files import onstart_dir

_LINES = 120
_PROGRAM = f"""\
import os
import time
from pathlib import Path

start, rank = int(os.environ["VASTRUN_RESTART"]), int(os.environ["RANK"])
for number in range({_LINES}):
    print(f"line {{start}}-{{number:03}}", flush=True)
    time.sleep(0.05)
Path("result.txt").write_text("42")
"""
_JOB = """\
name: together
nodes: {nodes}
ranks: 1
resources: {{gpus: 0, disk_gb: 8}}
limits: {{hours: 0.1, collect_s: 240, stall_s: 120}}
restarts: {{signal: 3}}
env: {{PYTHONPATH: "{stub}"}}
code: {{path: code}}
command: python program.py
success: {{files: result.txt, log: "line .-{last:03}"}}
"""
_RETRY = "retry: {lost: 2, signal: 1, host: 1}\n"
_LINE = re.compile(r"rank(\d+) line (\d)-(\d+)$", re.MULTILINE)
_RESUMES = 5
_ENDS = 20
_END_S = 600.0
_UNNOTICED_S = 90.0
RANK, SUPERVISOR, RUN = "program.py", "vastrun.onstart.supervise", "run.sh main"


@dataclass
class Struck:
    """A run that a trouble befalls."""

    terminal: Terminal
    launch: Launch
    nodes: int
    node: int
    """The one that is meant."""
    boxes: set[str] = field(default_factory=set)
    """All that were ever seen, by name."""

    @property
    def folder(self) -> Path:
        """Where its boxes are."""
        return self.terminal.state / "vastrun" / "boxes"

    def look(self) -> None:
        """Note what boxes there are."""
        with contextlib.suppress(FileNotFoundError):
            self.boxes |= {box.name for box in self.folder.iterdir() if not box.name.startswith(".")}

    def box(self, node: int) -> Path | None:
        """The box of that node, once it is there."""
        suffix = f"-n{node}." if node else "."
        for box in self.folder.glob(f"*{suffix}*"):
            if not box.name.startswith(".") and (node or not re.search(r"-n\d+\.", box.name)):
                return box
        return None

    def kill(self, words: str, node: int) -> bool:
        """Whether that node had a process with these words, which is dead now."""
        for process in self._processes(node, words):
            process.kill()
            return True
        return False

    def silence(self, node: int) -> bool:
        """Whether that node was there, and answers nobody; its provider notices that later."""
        box = self.box(node)
        if box is None or not (box / layout.STATUS).exists():
            return False
        (box / "onstart" / "status.sh").write_text("exec sleep 600\n")
        for process in self._processes(node):
            process.suspend()
        threading.Timer(_UNNOTICED_S, self.lose, (node,)).start()
        return True

    def _processes(self, node: int, words: str = "") -> Iterator[psutil.Process]:
        box = self.box(node)
        for process in psutil.process_iter() if box is not None else ():
            with contextlib.suppress(psutil.Error):
                if process.environ().get("VASTRUN_BOX") == str(box) and words in " ".join(process.cmdline()):
                    yield process

    def lose(self, node: int, *, with_launcher: bool = False) -> bool:
        """Whether the machine of that node was there, and is no more; nor is the launcher, if so asked."""
        box = self.box(node)
        if box is None or not (box / layout.STATUS).exists():
            return False
        script = str(onstart_dir() / layout.LEASE_SCRIPT)
        # A machine vanishes at once; a folder does not, and a launcher must not see half of it.
        self.launch.send(signal.SIGSTOP)
        for _ in range(_ENDS):
            subprocess.run(["bash", script, "end", box.name, str(box)], check=False, capture_output=True)
            if not box.exists():
                break
        self.launch.send(signal.SIGKILL if with_launcher else signal.SIGCONT)
        return True


def _kill_launcher(run: Struck) -> bool:
    run.launch.kill()
    return True


def _pause_launcher(run: Struck) -> bool:
    run.launch.send(signal.SIGSTOP)
    threading.Timer(6.0, run.launch.send, (signal.SIGCONT,)).start()
    return True


def _lose_all(run: Struck) -> bool:
    """One after the other, first the one that is meant."""
    if not all(map(run.box, range(run.nodes))) or not run.lose(run.node):
        return False
    time.sleep(1.0)
    for node in set(range(run.nodes)) - {run.node}:
        run.lose(node)
    return True


@dataclass(frozen=True)
class Trouble:
    """What befalls a run, and how it may end then. One that was over before has succeeded."""

    strike: Callable[[Struck], bool]
    """Returns whether there was somebody to befall."""
    verdict: str = "SUCCEEDED"
    cause: str | None = None


TROUBLES: Mapping[str, Trouble] = {
    "launcher killed": Trouble(_kill_launcher),
    "launcher paused": Trouble(_pause_launcher),
    "rank killed": Trouble(lambda run: run.kill(RANK, run.node)),
    "rank and launcher killed": Trouble(lambda run: run.kill(RANK, run.node) and _kill_launcher(run)),
    "supervisor killed": Trouble(lambda run: run.kill(SUPERVISOR, run.node), "FAILED", "signal"),
    "run.sh killed": Trouble(lambda run: run.kill(RUN, run.node), "FAILED", "host"),
    "machine lost": Trouble(lambda run: run.lose(run.node), "LOST", "lost"),
    "machine lost with the launcher": Trouble(
        lambda run: run.lose(run.node, with_launcher=True), "LOST", "lost"
    ),
    "machine silent, lost later": Trouble(lambda run: run.silence(run.node), "LOST", "lost"),
    "all machines lost": Trouble(_lose_all, "LOST", "lost"),
    "stop": Trouble(lambda run: run.terminal.type("stop", "last").exit_code == 0, "STOPPED", "stopped"),
}


def run(*, runs: int = 20, seed: int = 0, parallel: int = 2, nodes: int = 2) -> bool:
    """Print a line for each run, then the sums. True when every promise was kept."""
    began, faults = time.monotonic(), Counter[str]()
    with ThreadPoolExecutor(parallel) as pool:
        for over in as_completed([pool.submit(_launch, seed, number, nodes) for number in range(runs)]):
            line, found = over.result()
            print("  ".join([line, *(f"{kind.upper()}: {what}" for kind, what in found.items())]), flush=True)
            faults.update(found.keys())
    print(f"chaos on {nodes} nodes: {runs} runs in {time.monotonic() - began:.0f} s")
    for kind in KINDS:
        print(f"runs with {kind:<22} {faults[kind]}")
    return not faults


KINDS = ("boxes or processes left", "a machine rented twice", "a wrong verdict", "lines lost or repeated")


def _launch(seed: int, number: int, nodes: int) -> tuple[str, Mapping[str, str]]:
    """A line on the run with that number, and by kind what is wrong with it."""
    chance = random.Random(f"{seed}-{number}")
    name = list(TROUBLES)[number % len(TROUBLES)]
    node, retries, after_s = chance.randrange(nodes), chance.random() < 0.3, chance.uniform(0.0, 10.0)
    with tempfile.TemporaryDirectory(prefix="chaos-") as folder:
        terminal = Terminal(Path(folder))
        try:
            struck, has_struck = _driven(terminal, nodes, node, TROUBLES[name], after_s, retries=retries)
            rows = terminal.type("status", "--json").json()["runs"]
            rows.sort(key=lambda row: row["created_at"])
            found = {
                "boxes or processes left": " ".join(terminal.leftovers()),
                "a machine rented twice": _twice(struck.boxes),
                "a wrong verdict": _wrong(terminal, rows, TROUBLES[name] if has_struck else None, node),
                "lines lost or repeated": _torn(terminal.folder),
            }
        finally:
            terminal.clean()
    summary = ", ".join(f"{row['verdict']} {row['detail']}".strip() for row in rows)
    what = f"{name} (node {node}) at {after_s:.1f} s{'' if has_struck else ', in vain'}"
    return f"{number:3}  {what}: {summary}", {kind: text for kind, text in found.items() if text}


def _driven(
    terminal: Terminal, nodes: int, node: int, trouble: Trouble, after_s: float, *, retries: bool
) -> tuple[Struck, bool]:
    """Launch and resume until nobody is at work; and whether the trouble befell anybody."""
    code = terminal.folder / "code"
    code.mkdir()
    (code / "program.py").write_text(_PROGRAM)
    job = terminal.folder / "job.yaml"
    text = _JOB.format(nodes=nodes, stub=STUB_TORCH, last=_LINES - 1)
    job.write_text(text + (_RETRY if retries else ""))
    launch = terminal.start("launch", str(job), "--provider", "local")
    struck, began, has_struck = Struck(terminal, launch, nodes, node), None, False
    for _ in range(_RESUMES):
        until = time.monotonic() + _END_S
        while launch.process.poll() is None and time.monotonic() < until:
            struck.look()
            began = began or (time.monotonic() if struck.boxes else None)
            if not has_struck and began is not None and time.monotonic() - began >= after_s:
                has_struck = trouble.strike(struck)
            time.sleep(0.05)
        if launch.end(within_s=10).exit_code >= 0:
            break
        launch = struck.launch = terminal.start("resume", "last")
    return struck, has_struck


def _twice(boxes: set[str]) -> str:
    """The label that more than one box had."""
    labels = Counter(box.rpartition(".")[0] for box in boxes)
    return ", ".join(label for label, count in labels.items() if count > 1)


def _wrong(terminal: Terminal, rows: Sequence[Any], trouble: Trouble | None, node: int) -> str:
    """Why the verdicts are not to be believed."""
    if crashed := [path.name for path in terminal.folder.glob("stderr-*") if "Traceback" in path.read_text()]:
        return f"a traceback in {crashed[0]}"
    if any(row["verdict"] is None for row in rows):
        return "a run is still open"
    for row in rows:
        if row["verdict"] == "SUCCEEDED":
            if fault := _unproven(Path(row["out_dir"]), len(row["nodes"])):
                return fault
            continue
        if trouble is None or (row["verdict"], row["cause"]) != (trouble.verdict, trouble.cause):
            return f"{row['verdict']} by {row['cause']}, which nothing explains"
        if trouble.cause != "stopped" and not row["detail"].startswith(f"node {node}: "):
            return f"it was node {node}"
    return "" if rows else f"there is no run: {(terminal.folder / 'stderr-0').read_text()[-300:]}"


def _unproven(out: Path, nodes: int) -> str:
    """What a success claims, and its outputs do not show."""
    for node in range(nodes):
        folder = out / f"node-{node}" if node else out
        lines = {int(number) for _, _, number in _LINE.findall((folder / "log.txt").read_text())}
        if lines != set(range(_LINES)):
            return f"a success with {len(lines)} of {_LINES} lines of node {node}"
    return ""


def _torn(folder: Path) -> str:
    """Lines of a log that are missing before its last one, or there twice; of each start by itself."""
    for path in folder.glob("runs/**/log.txt"):
        logged: dict[tuple[str, str], list[int]] = {}
        for rank, start, number in _LINE.findall(path.read_text()):
            logged.setdefault((rank, start), []).append(int(number))
        for (rank, start), numbers in logged.items():
            if numbers != list(range(len(numbers))):
                return f"{path.relative_to(folder)}: rank {rank}, start {start}: {len(numbers)} lines"
    return ""
