"""The aftermath of a ride: what is still rented, what was claimed and what is true, what was paid."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.chaos.docker import left_containers
from benchmarks.chaos.job import LINE, LINES, RESULT, line_of
from benchmarks.chaos.plans import CERTAIN, CUT, LAUNCHER, Plan
from launcher.model import Cause, Verdict
from launcher.phases import EXIT_CODE_OF
from launcher.policy import LIMIT_SLACK_S
from tests.e2e.terminal import Terminal
from tests.emulators.vast import VastEmulator


@dataclass(frozen=True, kw_only=True)
class Aftermath:
    """Of one ride."""

    plan: Plan
    verdict: str
    wrong: str
    """Why the verdict is not to be believed; empty when it is."""
    left_rented: int
    left_containers: int
    lost_bytes: int
    repeated_bytes: int
    ledger_usd: float
    bill_usd: float
    """Both 0 where they cannot be compared."""
    usd_per_hour: float
    overspend_s: float
    evil: int
    """Files of a box outside of the outputs, files that run a program, characters that steer a terminal."""
    launcher_mb: float
    """Memory of a launcher, at most."""

    @property
    def drift(self) -> float:
        """By how much of the bill the ledger is too high."""
        return self.ledger_usd / self.bill_usd - 1 if self.bill_usd else 0.0

    @property
    def drift_s(self) -> float:
        """The same as seconds of the machine's price."""
        return (self.ledger_usd - self.bill_usd) / self.usd_per_hour * 3600 if self.usd_per_hour else 0.0

    def __str__(self) -> str:
        troubles = ", ".join(map(str, self.plan.troubles))
        end = " for good" if self.plan.abandoned else ""
        faults = [
            self.wrong and f"WRONG: {self.wrong}",
            self.left_rented and f"LEFT RENTED: {self.left_rented}",
            self.left_containers and f"CONTAINERS LEFT: {self.left_containers}",
            self.evil and f"EVIL: {self.evil}",
            self.lost_bytes and f"LOG LOST: {self.lost_bytes} bytes",
            self.repeated_bytes and f"LOG REPEATED: {self.repeated_bytes} bytes",
            f"ledger {self.drift:+.1%}" if abs(self.drift) >= 0.005 else "",
        ]
        return "  ".join(
            [f"{self.plan.number:4}  {self.verdict:10}", troubles + end, *map(str, filter(None, faults))]
        )


_ENDED_BEFORE = 2
"""What `resume` says of a run whose launcher was killed after its end."""

_REFUSALS = frozenset({1, 4, 8})
"""What `launch` ends with when it has nothing to begin with: no answer, a bad key, no offer."""

Logged = Sequence[tuple[str, str]]
"""The program's lines in one log: text and number."""


def look_back(
    plan: Plan, terminal: Terminal, vast: VastEmulator, codes: Sequence[int], launcher_mb: float
) -> Aftermath:
    """What there is to say when nobody is at work any more."""
    with vast.lock:
        left = len(vast.instances)
        bill_usd = vast.billing.total_usd()
        spans_s = [meter.gpu_seconds for meter in vast.billing.meters.values()]
        struck = frozenset(vast.faults.struck)
    rows = terminal.type("status", "--json").json()["runs"]
    last = max(rows, key=lambda row: row["created_at"], default=None)
    logs = [LINE.findall(path.read_text()) for path in terminal.folder.glob("runs/*/run.log")]
    spoilt = plan.deceit is not None and plan.deceit.spoils_log
    slack_s = LIMIT_SLACK_S if plan.stranded else 0.0
    comparable = left == 0 and not plan.loses_time and not plan.abandoned
    return Aftermath(
        plan=plan,
        verdict=str((last and last["verdict"]) or "none"),
        wrong="" if plan.abandoned else _wrong(plan, last, codes, struck),
        left_rented=left,
        left_containers=left_containers(vast),
        lost_bytes=0 if spoilt else sum(map(_lost, logs)),
        repeated_bytes=sum(map(_repeated, logs)),
        ledger_usd=terminal.type("cost", "--json").json()["usd"] if comparable else 0.0,
        bill_usd=bill_usd if comparable else 0.0,
        usd_per_hour=last["usd_per_hour"] if last else 0.0,
        overspend_s=max([0.0, *(span - plan.life_s - slack_s for span in spans_s)]),
        evil=_evil(terminal) if plan.deceit and last else 0,
        launcher_mb=launcher_mb,
    )


def _wrong(plan: Plan, last: Any, codes: Sequence[int], struck: frozenset[str]) -> str:
    if last is None:
        return _without_run(plan, codes)
    if last["verdict"] is None:
        return f"the run is still in phase {last['phase']}"
    verdict = Verdict(last["verdict"])
    if codes and codes[-1] not in (EXIT_CODE_OF[verdict], _ENDED_BEFORE):
        return f"{verdict} with exit code {codes[-1]}"
    if verdict is Verdict.SUCCEEDED:
        if plan.deceit and None not in plan.deceit.causes:
            return f"a success in spite of {plan.troubles[0]}"
        fatal = struck.intersection(CERTAIN)
        return f"a success in spite of {', '.join(fatal)}" if fatal else _unproven(Path(last["out_dir"]))
    excused = plan.excused if last["rented_at"] else plan.excused | plan.excused_before_renting
    if Cause(last["cause"]) not in excused:
        return f"{verdict} by {last['cause']} ({last['detail']}), but nothing happened that explains it"
    return ""


def _evil(terminal: Terminal) -> int:
    """What a box has written beside its outputs, or where git obeys it, or on the terminal."""
    shown = [path.read_text() for path in terminal.folder.glob("stderr-*")]
    shown += [terminal.type(*words).out for words in (("why", "last"), ("status", "last"), ("logs", "last"))]
    strange = sum(not (c.isprintable() or c in "\n\t") for text in shown for c in text)
    files = [path.relative_to(terminal.folder) for path in terminal.folder.rglob("*") if path.is_file()]
    outside = [path for path in files if path.parts[0] != "runs" and _is_evil(terminal.folder / path)]
    obeyed = [path for path in files if {part.casefold() for part in path.parts} & {".git", ".gitattributes"}]
    return strange + len(outside) + len(obeyed)


def _is_evil(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(4) == b"evil"


def _without_run(plan: Plan, codes: Sequence[int]) -> str:
    """The launcher was killed before it began, or there was nothing that it could begin with."""
    kinds = {trouble.kind for trouble in plan.troubles}
    explained = LAUNCHER in kinds or ((plan.excused or CUT in kinds) and _REFUSALS.issuperset(codes))
    return "" if explained else f"there is no run, and exit code {codes[-1]}"


def _unproven(outputs: Path) -> str:
    """What a success claims and its outputs do not show."""
    result = outputs / "code" / "result.txt"
    numbers = [int(number) for _, number in LINE.findall((outputs / "run.log").read_text())]
    if not result.exists() or result.read_text() != RESULT:
        return "a success without its result"
    return "" if numbers == list(range(LINES)) else f"a success with {len(numbers)} of {LINES} lines"


def _lost(lines: Logged) -> int:
    """Bytes of the lines that are missing before the last one that is there."""
    there = {int(number) for _, number in lines}
    return sum(len(line_of(number)) for number in range(max(there, default=0)) if number not in there)


def _repeated(lines: Logged) -> int:
    times = Counter(text for text, _ in lines)
    return sum((count - 1) * len(text) for text, count in times.items())
