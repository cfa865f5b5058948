"""The aftermath of a launch: what is still rented, what was claimed and what is true, what was paid."""

import json
from collections import Counter
from collections.abc import Callable, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.chaos.docker import left_containers
from benchmarks.chaos.job import LINE, LINES, RESULT, line_of
from benchmarks.chaos.plans import Plan
from benchmarks.chaos.troubles import CERTAIN, CUT, FAULT, LAUNCHER, MONEY, PAUSE, USER, Trouble
from tests.e2e.terminal import Launch, Terminal
from tests.emulators.vast import VastEmulator
from vastrun.launcher.core import Cause, Verdict
from vastrun.launcher.core.verdict import EXIT_CODE_OF
from vastrun.launcher.cost.reconciliation import ROUNDED_USD
from vastrun.launcher.decisions.policy import INVALID_STATUS_S, LIMIT_SLACK_S
from vastrun.launcher.outputs.folder import TRANSCRIPT


@dataclass
class Story:
    """What happened at a launch."""

    struck: set[Trouble] = field(default_factory=set)
    codes: list[int] = field(default_factory=list)
    """Of the launchers that were not killed, in their order."""
    beside: list[tuple[Trouble, Launch]] = field(default_factory=list)
    """What was typed at another terminal meanwhile."""
    launcher_mb: float = 0.0
    """Memory that a launcher took at most."""
    waited_s: float = 0.0
    """Until Vast's own servers ended a machine that never started."""
    ended_too_early: bool = False
    """They did so before its last possible moment."""


@dataclass(frozen=True, kw_only=True)
class Aftermath:
    """Of one launch."""

    plan: Plan
    verdict: str
    wrong: str
    """Why the verdict is not to be believed; empty when it is."""
    left_rented: int
    left_containers: int
    ended_needlessly: int
    """Machines that a schedule of Vast's ended although they might have lived."""
    twice_rented: int
    lost_bytes: int
    repeated_bytes: int
    ledger_usd: float
    """As it was counted."""
    settled_usd: float
    """In the ledger once the bill was settled."""
    bill_usd: float
    """As billed until the ends of the machines. All three 0 where they cannot be compared."""
    charged_usd: float
    """As billed in all: for some minutes more or less."""
    at_most_usd: float
    """The most that the ledger expected to be billed, before that was known."""
    rounded_usd: float
    """Of charges with three decimals, for each machine and day."""
    usd_per_hour: float
    overspend_s: float
    evil: int
    """Files of a box outside of the outputs, files that run a program, characters that steer a terminal."""
    launcher_mb: float
    """Memory of a launcher, at most."""
    guard_gap_s: float
    """Longest time between two looks of a launcher's guard; 0: each was stopped, or told none."""

    @property
    def drift(self) -> float:
        """By how much of the bill the ledger is too high."""
        return self.ledger_usd / self.bill_usd - 1 if self.bill_usd else 0.0

    @property
    def settled_drift(self) -> float:
        """The same once the bill was settled."""
        # What is rounded to nothing is in no charge: its cost stays as it was counted.
        if abs(self.settled_usd - self.charged_usd) <= self.rounded_usd or self.charged_usd < ROUNDED_USD / 2:
            return 0.0
        return self.settled_usd / self.charged_usd - 1

    @property
    def is_below(self) -> bool:
        """Whether more was charged than the ledger expected at most."""
        return self.charged_usd > self.at_most_usd + self.rounded_usd

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
            self.ended_needlessly and f"ENDED BY A SCHEDULE: {self.ended_needlessly}",
            self.twice_rented and f"RENTED TWICE: {self.twice_rented}",
            self.evil and f"EVIL: {self.evil}",
            self.lost_bytes and f"LOG LOST: {self.lost_bytes} bytes",
            self.repeated_bytes and f"LOG REPEATED: {self.repeated_bytes} bytes",
            "" if -0.0005 <= self.drift < 0.005 else f"ledger {self.drift:+.2%} ({self.drift_s:+.1f} s)",
            f"CHARGED ${self.charged_usd:.4f}, EXPECTED ${self.at_most_usd:.4f}" if self.is_below else "",
            "" if abs(self.settled_drift) < 0.0005 else f"NOT SETTLED: {self.settled_drift:+.2%}",
        ]
        return "  ".join(
            [f"{self.plan.number:4}  {self.verdict:10}", troubles + end, *map(str, filter(None, faults))]
        )


_ENDED_BEFORE = 2
"""What `resume` says of a run whose launcher was killed after its end."""
_HELD = 1
"""What `resume` says of a run that another launcher drives."""
_REFUSALS = frozenset({1, 4, 8})
"""What `launch` ends with when it has nothing to begin with: no answer, a bad key, no offer."""
BEYOND = ("create_twice", "create_late", "created_stopped", "bid_rejected", "bid_never")
"""Faults by which Vast makes a machine more by itself, or one that never ran."""
_TRACEBACK = "Traceback (most recent call last)"

Logged = Sequence[tuple[str, str]]
"""The program's lines in one log: text and number."""


def look_back(
    plan: Plan, terminal: Terminal, vast: VastEmulator, story: Story, wait_until_settled: Callable[[], None]
) -> Aftermath:
    """What there is to say when nobody is at work any more."""
    with vast.lock:
        left = len(vast.instances)
        charged_usd, tails_usd = vast.billing.total_usd(), vast.billing.tails_usd
        spans_s = [meter.gpu_seconds for meter in vast.billing.meters.values()]
        struck = frozenset(vast.faults.struck)
        scheduled = len(vast.schedules.destroyed)
    rows = terminal.type("status", "--json").json()["runs"]
    last = max(rows, key=lambda row: row["created_at"], default=None)
    logs = [LINE.findall(path.read_text()) for path in terminal.folder.glob("runs/*/log.txt")]
    spoilt = plan.deceit is not None and plan.deceit.spoils_log
    slack_s = LIMIT_SLACK_S if plan.stranded else 0.0
    comparable = left == 0 and not plan.abandoned
    none = (0.0, 0.0, 0.0)
    ledger_usd, at_most_usd, settled_usd = _costs(terminal, wait_until_settled) if comparable else none
    return Aftermath(
        plan=plan,
        verdict=str((last and last["verdict"]) or "none"),
        wrong=crashed(terminal) or ("" if plan.abandoned else _wrong(plan, rows, last, story, struck)),
        left_rented=left,
        left_containers=left_containers(vast),
        ended_needlessly=story.ended_too_early if plan.never_starts else scheduled,
        twice_rented=_twice(struck, len(spans_s), rows),
        lost_bytes=0 if spoilt else sum(map(lost_bytes_in, logs)),
        repeated_bytes=sum(map(repeated_bytes_in, logs)),
        ledger_usd=ledger_usd,
        settled_usd=settled_usd,
        bill_usd=charged_usd - tails_usd if comparable else 0.0,
        charged_usd=charged_usd if comparable else 0.0,
        at_most_usd=at_most_usd,
        rounded_usd=ROUNDED_USD * len(spans_s),
        usd_per_hour=last["usd_per_hour"] if last else 0.0,
        overspend_s=max([0.0, *(span - plan.life_s - slack_s for span in spans_s)]),
        evil=_evil(terminal) if plan.deceit and last else 0,
        launcher_mb=story.launcher_mb,
        guard_gap_s=0.0 if was_paused(story) else guard_gap_s(terminal.folder),
    )


def guard_gap_s(folder: Path) -> float:
    """The longest gap that the transcripts below that folder tell."""
    gaps = [0.0]
    for path in folder.rglob(TRANSCRIPT):
        for line in path.read_bytes().splitlines():
            with suppress(ValueError):  # the last line of a launcher that was killed may be half
                gaps.append(json.loads(line).get("guard_gap_s", 0.0))
    return max(gaps)


def was_paused(story: Story) -> bool:
    """Whether a launcher was stopped: it looks at nothing meanwhile."""
    return any(trouble.kind == PAUSE for trouble in story.struck)


def _costs(terminal: Terminal, wait_until_settled: Callable[[], None]) -> tuple[float, float, float]:
    """What the ledger says of all runs: as it counted, at most, and after it read the settled bill."""
    counted = terminal.type("cost", "--json").json()
    wait_until_settled()
    terminal.type("cost", "reconcile", "--json")
    at_most_usd = sum(run["at_most_usd"] for run in counted["runs"] if run["in_total"])
    return counted["usd"], at_most_usd, terminal.type("cost", "--json").json()["usd"]


def crashed(terminal: Terminal) -> str:
    """Whether any command ended in a traceback."""
    crashed = [path for path in terminal.folder.glob("stderr-*") if _TRACEBACK in path.read_text()]
    return f"a traceback: {crashed[0].read_text().splitlines()[-1]}" if crashed else ""


def _wrong(plan: Plan, rows: Sequence[Any], last: Any, story: Story, struck: frozenset[str]) -> str:
    if last is None:
        return _without_run(story, struck)
    if last["verdict"] is None:
        return f"the run is still in phase {last['phase']}"
    verdict = Verdict(last["verdict"])
    allowed = {EXIT_CODE_OF[verdict], _ENDED_BEFORE, *([_HELD] if story.beside else [])}
    if story.codes and story.codes[-1] not in allowed:
        return f"{verdict} with exit code {story.codes[-1]}"
    # Who followed an attempt before the last one says how that one ended.
    followed = {EXIT_CODE_OF[Verdict(row["verdict"])] for row in rows if row["verdict"]}
    for trouble, command in story.beside:
        if odd := _odd(trouble, command.process.returncode, allowed | followed):
            return odd
    if verdict is Verdict.SUCCEEDED:
        if plan.deceit and None not in plan.deceit.causes:
            return f"a success in spite of {plan.troubles[0]}"
        fatal = struck.intersection(CERTAIN)
        return f"a success in spite of {', '.join(fatal)}" if fatal else _unproven(Path(last["out_dir"]))
    if Cause(last["cause"]) not in _excuses(plan, last, story, struck):
        return f"{verdict} by {last['cause']} ({last['detail']}), but nothing happened that explains it"
    return ""


def _odd(trouble: Trouble, code: int, allowed: Set[int]) -> str:
    """What is wrong with the exit code of a command that was typed beside the launcher."""
    expected = {
        "stop": {0, 2},
        "stop at once": {0, 2},
        "resume beside it": {*allowed, _HELD},
        "another key": {_HELD, 2, 4},
    }.get(trouble.name, allowed)
    return "" if code in expected else f"{trouble.name} ended with exit code {code}"


def _excuses(plan: Plan, last: Any, story: Story, struck: frozenset[str]) -> Set[Cause]:
    """The causes by which a run may have ended, after what really struck it."""
    excused = {cause for cause in plan.deceit.causes if cause} if plan.deceit else set()
    for trouble in plan.troubles:
        if trouble in story.struck or (trouble.kind == FAULT and trouble.name in struck):
            excused |= trouble.excuses
    kinds = {trouble.kind for trouble in story.struck}
    if CUT in kinds and not last["rented_at"]:
        excused.add(Cause.PROVIDER)  # whoever is off line then is told so at once
    if MONEY in kinds and kinds & {CUT, LAUNCHER, PAUSE}:
        excused |= {Cause.LOST, Cause.OUTPUTS_LOST}  # the lease ended it while nobody was there to collect
    away_s = max((trouble.seconds for trouble in story.struck if trouble.kind in (CUT, PAUSE)), default=0.0)
    if plan.deceit and away_s + INVALID_STATUS_S > plan.collect_s:
        excused |= {Cause.LOST, Cause.OUTPUTS_LOST}  # heard only nonsense until the lease ended it
    if kinds & {USER, MONEY} and struck:
        excused.add(Cause.HOST)  # no other machine is taken for a run that is to stop, or has no money left
    return excused


def _twice(struck: frozenset[str], machines: int, rows: Sequence[Any]) -> int:
    """How many machines were rented beyond one for each try, but for those that Vast made by itself."""
    return max(0, machines - len(rows) - sum(name in struck for name in BEYOND))


def _evil(terminal: Terminal) -> int:
    """What a box has written beside its outputs, or where git obeys it, or on the terminal."""
    shown = [path.read_text() for path in terminal.folder.glob("stderr-*")]
    shown += [terminal.type(*words).out for words in (("why", "last"), ("status", "last"), ("logs", "last"))]
    unprintable = sum(not (c.isprintable() or c in "\n\t") for text in shown for c in text)
    files = [path.relative_to(terminal.folder) for path in terminal.folder.rglob("*") if path.is_file()]
    outside = [path for path in files if path.parts[0] != "runs" and _is_evil(terminal.folder / path)]
    obeyed = [path for path in files if {part.casefold() for part in path.parts} & {".git", ".gitattributes"}]
    return unprintable + len(outside) + len(obeyed)


def _is_evil(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(4) == b"evil"


def _without_run(story: Story, struck: frozenset[str]) -> str:
    """The launcher was killed before it began, or there was nothing that it could begin with."""
    gone = {trouble.kind for trouble in story.struck} & {LAUNCHER, CUT, USER}
    explained = gone or (struck and _REFUSALS.issuperset(story.codes))
    return "" if explained else f"there is no run, and exit code {story.codes[-1]}"


def _unproven(outputs: Path) -> str:
    """What a success claims and its outputs do not show."""
    result = outputs / "outputs" / "result.txt"
    numbers = [int(number) for _, number in LINE.findall((outputs / "log.txt").read_text())]
    if not result.exists() or result.read_text() != RESULT:
        return "a success without its result"
    return "" if numbers == list(range(LINES)) else f"a success with {len(numbers)} of {LINES} lines"


def lost_bytes_in(lines: Logged) -> int:
    """Bytes of the lines that are missing before the last one that is there."""
    there = {int(number) for _, number in lines}
    return sum(len(line_of(number)) for number in range(max(there, default=0)) if number not in there)


def repeated_bytes_in(lines: Logged) -> int:
    times = Counter(text for text, _ in lines)
    return sum((count - 1) * len(text) for text, count in times.items())
