"""The aftermath of a batch: what is still rented, which points were lost or run twice, what was paid."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.chaos.aftermath import (
    BEYOND,
    Story,
    crashed,
    guard_gap_s,
    lost_bytes_in,
    repeated_bytes_in,
    was_paused,
)
from benchmarks.chaos.batches.files import LINES, NAME, RESULT
from benchmarks.chaos.batches.plans import EDIT, STOP, BatchPlan
from benchmarks.chaos.job import LINE
from benchmarks.chaos.troubles import CUT, FAULT, LAUNCHER, PAUSE, REPRICED, UNCHARGED, USER
from tests.e2e.terminal import Launch, Terminal
from tests.emulators.vast import VastEmulator
from vastrun.launcher.core import Cause

_CENT_USD = 1e-6
_HELD, _USAGE = 1, 2
_ACCOUNT_WIDE = ("credit_zero", "search_quota")
"""After these no further run can begin."""


@dataclass
class BatchStory(Story):
    """What happened at a batch."""

    noted: list[Launch] = field(default_factory=list)
    """Of `beside`: those whose end was seen."""
    max_held_usd: float = 0.0
    """Spent and reserved at any look."""

    def see(self, status: Mapping[str, Any]) -> None:
        """Take in a look at the batch."""
        self.max_held_usd = max(self.max_held_usd, status["usd"] + status["reserved_usd"])


@dataclass(frozen=True, kw_only=True)
class BatchAftermath:
    """Of one batch."""

    plan: BatchPlan
    verdicts: Mapping[str, int]
    wrong: Sequence[str]
    """Why verdicts, points or exit codes are not to be believed; empty when they are."""
    left_rented: int
    twice_rented: int
    lost_bytes: int
    repeated_bytes: int
    machines: int
    ledger_usd: float
    bill_usd: float
    usd_per_hour: float
    """Of the dearest machine."""
    over_budget_s: float
    """What was billed beyond the budget, in seconds of the price of what could be open."""
    over_reserved_usd: float
    watched: bool
    """When its machines ended, or their prices changed, can be known: somebody could look."""
    launcher_mb: float
    guard_gap_s: float

    @property
    def drift(self) -> float:
        """By how much of the bill the ledger is too high."""
        return self.ledger_usd / self.bill_usd - 1 if self.bill_usd else 0.0

    @property
    def drift_s(self) -> float:
        """The same as seconds of a machine's price, for each of its machines."""
        if not self.usd_per_hour:
            return 0.0
        return (self.ledger_usd - self.bill_usd) / self.usd_per_hour * 3600 / self.machines

    def __str__(self) -> str:
        troubles = ", ".join(map(str, self.plan.troubles)) or "no trouble"
        verdicts = " ".join(f"{count} {verdict}" for verdict, count in self.verdicts.items())
        faults = [
            *(f"WRONG: {one}" for one in self.wrong),
            self.left_rented and f"LEFT RENTED: {self.left_rented}",
            self.twice_rented and f"RENTED TWICE: {self.twice_rented}",
            self.lost_bytes and f"LOG LOST: {self.lost_bytes} bytes",
            self.repeated_bytes and f"LOG REPEATED: {self.repeated_bytes} bytes",
            self.over_reserved_usd and f"RESERVED BEYOND ITS BUDGET: ${self.over_reserved_usd:.4f}",
            self.over_budget_s and f"bill beyond the budget: {self.over_budget_s:.0f} s of price",
            "" if -0.0005 <= self.drift < 0.005 else f"ledger {self.drift:+.2%} ({self.drift_s:+.1f} s)",
        ]
        return "  ".join([f"{self.plan.number:4}  {verdicts}", troubles, *map(str, filter(None, faults))])


def look_back(plan: BatchPlan, terminal: Terminal, vast: VastEmulator, story: BatchStory) -> BatchAftermath:
    """Return what there is to say when nobody is at work any more."""
    with vast.lock:
        left = len(vast.instances)
        bill_usd = vast.billing.total_usd()
        labels = Counter(meter.label for meter in vast.billing.meters.values())
        struck = list(vast.faults.struck)
    done = terminal.type("batch", "status", NAME, "--json")
    none = {"points_list": [], "usd": 0.0, "reserved_usd": 0.0}
    status: Mapping[str, Any] = done.json() if done.exit_code == 0 else none
    story.see(status)
    rows = {row["id"]: row for row in terminal.type("status", "--json").json()["runs"]}
    logs = [LINE.findall(path.read_text()) for path in terminal.folder.glob("batches/*/*/log.txt")]
    usd_per_hour = max((row["usd_per_hour"] for row in rows.values()), default=0.0)
    allowed_usd_per_s = usd_per_hour * plan.parallel / 3600
    beyond_usd = max(0.0, bill_usd - plan.budget_usd)
    points = status["points_list"]
    return BatchAftermath(
        plan=plan,
        verdicts=Counter(str(point["verdict"]) for point in points if point["wanted"]),
        wrong=tuple(filter(None, [crashed(terminal), *_wrong(plan, status, rows, story, struck)])),
        left_rented=left,
        twice_rented=_twice(labels, struck),
        lost_bytes=sum(map(lost_bytes_in, logs)),
        repeated_bytes=sum(map(repeated_bytes_in, logs)),
        machines=max(1, labels.total()),
        ledger_usd=terminal.type("cost", "--json").json()["usd"] if not left else 0.0,
        bill_usd=bill_usd if not left else 0.0,
        usd_per_hour=usd_per_hour,
        over_budget_s=beyond_usd / allowed_usd_per_s if allowed_usd_per_s else 0.0,
        over_reserved_usd=_over_reserved_usd(plan, story),
        watched=_was_watched(plan, story, struck),
        launcher_mb=story.launcher_mb,
        guard_gap_s=0.0 if was_paused(story) else guard_gap_s(terminal.folder),
    )


def _over_reserved_usd(plan: BatchPlan, story: BatchStory) -> float:
    over_usd = story.max_held_usd - plan.budget_usd
    return over_usd if over_usd > _CENT_USD else 0.0


def _was_watched(plan: BatchPlan, story: BatchStory, struck: Sequence[str]) -> bool:
    unseen = {trouble.kind for trouble in story.struck} & {CUT, LAUNCHER, PAUSE}
    ends_unseen = any(point.ending == "stays" for point in plan.by_number.values())
    return not (unseen and (ends_unseen or {*UNCHARGED, *REPRICED} & set(struck)))


def _twice(labels: Mapping[str | None, int], struck: Sequence[str]) -> int:
    """Return how many machines were rented beyond one a run, but for those that Vast made by itself."""
    by_itself = sum(name in BEYOND for name in struck)
    return max(0, sum(count - 1 for count in labels.values()) - by_itself)


def _wrong(
    plan: BatchPlan,
    status: Mapping[str, Any],
    rows: Mapping[str, Any],
    story: BatchStory,
    struck: Sequence[str],
) -> Iterator[str]:
    points = status["points_list"]
    if not points:
        yield f"there is no batch, and exit codes {story.codes}"
        return
    requested = {point["values"]["n"] for point in points if point["wanted"]}
    if requested not in [{point.number for point in file} for file in (plan.points, plan.edited)]:
        yield f"its points are those of no file: {sorted(requested)}"
    yield from _wrong_code(status, story)
    yield from _wrong_commands(story)
    by_cause: Counter[Cause] = Counter()
    for point in points:
        runs = [rows[id_] for id_ in point["runs"]]
        planned = plan.by_number[point["values"]["n"]]
        name = f"point {point['number']} (n={planned.number})"
        for fault in _wrong_runs(point, runs, status, story):
            yield f"{name}: {fault}"
        if point["verdict"] == "SUCCEEDED":
            if planned.ending != "well":
                yield f"{name}: a success of a program that {planned.ending}"
            elif unproven := _unproven(Path(runs[-1]["out_dir"]), planned.number):
                yield f"{name}: {unproven}"
        elif point["verdict"] is not None:
            cause = Cause(runs[-1]["cause"])
            if cause not in _OWN_CAUSE[planned.ending]:
                by_cause[cause] += 1
    yield from _unexplained(plan, by_cause, story, struck, rows)


_OWN_CAUSE: Mapping[str, Set[Cause]] = {
    "well": frozenset(),
    "fails": frozenset({Cause.USER_ERROR}),
    "stays": frozenset({Cause.MONEY_LIMIT}),
}
"""By which causes a point ends that nothing befalls."""


def _wrong_runs(
    point: Mapping[str, Any], runs: Sequence[Any], status: Mapping[str, Any], story: BatchStory
) -> Iterator[str]:
    """What is wrong with the runs of one point, whatever their causes are."""
    phases = [run["phase"] for run in runs if run["verdict"] is None]
    if phases:
        yield f"a run is still in phase {', '.join(phases)}"
    ids = {run["id"] for run in runs}
    # One for which there was no machine is started again.
    former = [None, *(run["cause"] for run in runs[:-1])]
    starts = [
        run["parent"] not in ids and cause != Cause.NO_OFFER for run, cause in zip(runs, former, strict=False)
    ]
    if sum(starts) > 1:
        yield f"started {sum(starts)} times"
    parents = Counter(run["parent"] for run in runs if run["parent"] in ids)
    if any(count > 1 for count in parents.values()):
        yield "two attempts follow one"
    if sum(run["verdict"] == "SUCCEEDED" for run in runs) > 1:
        yield "two successes"
    if any(run["verdict"] == "SUCCEEDED" for run in runs[:-1]):
        yield "tried again after a success"
    excused = status["reason"] or (_was_stopped(story) and story.codes[-1] == 3)
    if point["wanted"] and point["verdict"] is None and not phases and not excused:
        yield "it has no verdict, and nothing says why"


def _unproven(outputs: Path, number: int) -> str:
    """Return what a success claims and its outputs do not show."""
    result = outputs / "outputs" / RESULT
    if not result.exists() or result.read_text() != str(number):
        return "a success without its result"
    lines = [int(line) for _, line in LINE.findall((outputs / "log.txt").read_text())]
    return "" if lines == list(range(LINES)) else f"a success with {len(lines)} of {LINES} lines"


def _unexplained(
    plan: BatchPlan,
    by_cause: Mapping[Cause, int],
    story: BatchStory,
    struck: Sequence[str],
    rows: Mapping[str, Any],
) -> Iterator[str]:
    """A trouble that strikes once excuses one point; what befalls an account or a launcher, all of them."""
    many: set[Cause] = set()
    once: Counter[Cause] = Counter()
    for trouble in plan.troubles:
        strikes = struck.count(trouble.name) if trouble.kind == FAULT else int(trouble in story.struck)
        if strikes and (trouble.kind == USER or trouble.name in _ACCOUNT_WIDE):
            many |= trouble.excuses
        elif strikes:
            once.update(trouble.excuses)
    kinds = {trouble.kind for trouble in story.struck}
    if "count_off" in struck and LAUNCHER in kinds:
        many.add(Cause.PROVIDER)  # whether it had rented before it was killed cannot be told from such a list
    if (
        any(row["rented_at"] is None and row["cause"] == Cause.PROVIDER for row in rows.values())
        and CUT in kinds
    ):
        many.add(Cause.PROVIDER)  # whoever is off line then is told so at once
    if any(point.ending == "stays" for point in plan.by_number.values()):
        many.add(Cause.MONEY_LIMIT)  # the money of all its points lasts a minute
        if kinds & {CUT, LAUNCHER, PAUSE}:
            many |= {Cause.LOST, Cause.OUTPUTS_LOST}
    for cause, count in by_cause.items():
        if cause not in many and count > once[cause]:
            details = [row["detail"] for row in rows.values() if row["cause"] == cause]
            yield f"{count} points ended by {cause} ({details[-1]}), {once[cause]} of them explained"


def _was_stopped(story: BatchStory) -> bool:
    return any(trouble.name == STOP for trouble in story.struck)


def _wrong_code(status: Mapping[str, Any], story: BatchStory) -> Iterator[str]:
    """The exit code of the last launcher, by the table in docs/batch.md."""
    codes = [code for code in story.codes if code != _HELD]
    if not codes:
        return
    requested = [point["verdict"] for point in status["points_list"] if point["wanted"]]
    if all(verdict == "SUCCEEDED" for verdict in requested):
        expected = 0
    elif _was_stopped(story) and codes[-1] == 3:
        expected = 3
    else:
        expected = 9 if status["reason"] else 5
    if codes[-1] != expected:
        yield f"exit code {codes[-1]} where {expected} is due"


def _wrong_commands(story: BatchStory) -> Iterator[str]:
    """Of what was typed beside the launcher."""
    for trouble, command in story.beside:
        code = command.process.returncode
        if trouble.name == STOP:
            expected = {0, _USAGE}
        else:
            # It may come before the batch is written, find it driven, or drive it to an end of its own.
            expected = {0, _HELD, _USAGE, 3, 5, 9}
            if trouble.kind == EDIT:
                expected |= {4, 8}
        if code not in expected:
            yield f"{trouble.name} ended with exit code {code}"
