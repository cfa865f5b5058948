"""A fake box: files, a lease and a training, all functions of the clock."""

import hashlib
import json
import math
import posixpath
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace

from vastrun.contract import layout
from vastrun.contract.outcome import REASONS, CheckpointEnd, FileChecksum, Outcome, RankEnd
from vastrun.launcher.core import Instance, RentalOrder
from vastrun.launcher.ports import Clock

RANKS = 2
"""On each box."""
_LEASE = ("LIFE", "SHIP", "COLLECT", "GRACE")
"""What its lease counts in seconds."""


@dataclass(frozen=True, kw_only=True)
class Training:
    """What a fake box does once it is started."""

    kind: str = "train"
    """As its outcome says; `hold` takes slots until it is stopped."""
    seconds: float = 20.0
    steps: int = 10
    checkpoint_every: int = 4
    scores_s: float = 0.0
    """Of `seconds`, those after its last step."""
    before_s: Mapping[str, float] = field(default_factory=dict)
    """The steps of onstart before it, by name, and how long each takes."""
    imports_s: float = 0.0
    """Before its ranks are started."""
    loss: float = 1.0
    """Before its first step; it falls from there."""
    says: Callable[[str], str] = str
    """What stands in its log instead of a line."""
    beats: bool = True
    """Its ranks tell their steps."""
    outcome: Callable[[Outcome], Outcome] | None = None
    """Changes the outcome of a success into that of another ending."""
    stopped: Callable[[Outcome], Outcome] | None = None
    """Changes the outcome of a stop."""
    exit_code: int = 0
    writes_outcome: bool = True
    leaves: Mapping[str, bytes] = field(default_factory=dict)
    """Files that are there at its end, besides."""
    receipts: tuple[str, ...] = ()
    """What it says in turn of the data that it lacks."""
    writes_manifest: bool = True
    """Lists its outputs at its end; a box whose disk is full cannot."""
    supervisor: Mapping[str, object] = field(default_factory=dict)
    """What its status says besides, while it trains."""
    received_mb: int = 0
    """What came through its box's interfaces."""
    obeys: bool = True
    """Stops when it is asked to; a box that does not has no lease that would end it, either."""
    kills_lease_after_s: float = math.inf
    """From its start; who arms the lease again says since when it counts."""
    dies_after_s: float = math.inf
    """From its start: all of its processes are gone, and nothing writes an exit code."""


@dataclass(frozen=True, kw_only=True)
class Loading:
    """How long a machine takes to come up, and how often its provider tells of another layer."""

    seconds: float = 0.0
    layer_s: float = math.inf
    queued: bool = False
    """It waits for its turn so long; then it runs."""


class FakeBox:
    """One rented machine: files, a lease and a training, all functions of the clock."""

    def __init__(
        self,
        instance: Instance,
        order: RentalOrder,
        training: Training,
        clock: Clock,
        *,
        loading: Loading = Loading(),
    ) -> None:
        self.instance = instance
        self.gpus = order.offer.gpus
        self.loading = loading
        self.up_at = instance.rented_at + loading.seconds
        self.training = training
        self.files: dict[str, bytes] = {"lease.sh": order.onstart.encode()}
        self.modes: dict[str, int] = {}
        self.receipts = list(training.receipts)
        self.started_at: float | None = None
        self.stop_at: float | None = None
        self.ended_at: float | None = None
        self.charged_until: float | None = None
        """At the prices that it had before."""
        self.ends_at = math.inf
        """The job's deadline, as the box was told."""
        self._told_step: int | None = None
        self._onstart_at = 0.0
        self._told_onstart_step = ""
        self._saved_step = 0
        self._lease_from = self.up_at
        self._rearmed = False
        self._lease_s = {name: float(order.env[f"LEASE_{name}_S"]) for name in _LEASE}
        self._life_cause = order.env["LEASE_LIFE_CAUSE"].encode()
        self._clock = clock
        self.nodes = max(1, len(order.nodes))
        self.node = order.nodes.index(order.label) if order.nodes else 0
        self.node_labels: tuple[str, ...] = order.nodes

    @property
    def is_up(self) -> bool:
        return self._clock.now() >= self.up_at

    @property
    def _life_s(self) -> float:
        """As the lease counts, or until the deadline that the launcher set."""
        return min(self._lease_s["LIFE"], self.ends_at - self._lease_from)

    def listed(self) -> Instance:
        """The machine as its provider lists it."""
        if self.is_up and self.loading.queued:
            return replace(self.instance, queued=False, up_s=self._clock.now() - self.up_at)
        if self.is_up:
            return self.instance
        if self.loading.queued:
            note = "Priority: other jobs come first"
            return replace(self.instance, state="loading", idle=True, queued=True, note=note)
        layer = int((self._clock.now() - self.instance.rented_at) / self.loading.layer_s)
        return replace(self.instance, state="loading", note=f"layer {layer}: Pulling fs layer")

    def lease_end(self) -> float | None:
        """When the lease ended this machine; None while it lives."""
        now, born = self._clock.now(), self._lease_from
        if not self.training.obeys or self._is_disarmed:
            return None
        ends = [born + self._life_s]
        if self.started_at is None:
            ends.append(born + self._lease_s["SHIP"])
        if self.ended_at is not None:
            ends.append(self.ended_at + self._lease_s["COLLECT"])
        return min(ends) if min(ends) <= now else None

    def advance(self) -> None:
        """Everything that should have happened by now has."""
        now = self._clock.now()
        self.files[layout.LEASE_STATE] = b"state=armed\n"
        stop_from = self._lease_from + self._life_s - self._lease_s["GRACE"]
        if now >= stop_from and not self._is_disarmed:
            self.files.setdefault(layout.STOP, self._life_cause)
        if self.started_at is None or self.ended_at is not None:
            return
        if layout.STOP in self.files and self.stop_at is None and self.training.obeys:
            self.stop_at = now
        if self._told_onstart_step != self._onstart_step():
            if self._told_onstart_step:
                self._log("done", source=self._told_onstart_step)
            self._told_onstart_step = self._onstart_step()
            self._log("begins", source=self._told_onstart_step)
        over_at = self.started_at + self.training.seconds
        if now >= over_at:
            self._finish(over_at)
        elif self.stop_at is not None and now >= self.stop_at + 2:
            self._stop(now)
        elif now >= self.started_at and self.step() != self._told_step:
            self._told_step = self.step()
            self._log(f"step {self.step()}")
            self._tell(self.step())
            newest = self.step() // self.training.checkpoint_every * self.training.checkpoint_every
            if newest != self._saved_step:
                self._saved_step = newest
                self._save(newest)

    def start(self) -> None:
        """Its run begins; its training does after the steps before it."""
        if self.started_at is None:
            self._onstart_at = self._clock.now()
            self.started_at = self._onstart_at + sum(self.training.before_s.values())

    def rearm(self, age_s: float) -> None:
        """The lease is at work, and counts from `age_s` ago."""
        if self._is_disarmed:
            self._rearmed, self._lease_from = True, self._clock.now() - age_s

    @property
    def _is_disarmed(self) -> bool:
        began = math.inf if self.started_at is None else self.started_at
        return not self._rearmed and self._clock.now() >= began + self.training.kills_lease_after_s

    def step(self) -> int:
        if self.started_at is None:
            return 0
        if not self.training.beats:
            return 0
        stepping_s = self.training.seconds - self.training.scores_s
        done = ((self.ended_at or self._clock.now()) - self.started_at) / stepping_s
        return max(0, min(self.training.steps, int(done * self.training.steps)))

    def _onstart_step(self) -> str:
        if self.started_at is None:
            return ""
        ends_at = self._onstart_at
        for name, seconds in self.training.before_s.items():
            ends_at += seconds
            if self._clock.now() < ends_at:
                return name
        return "50-train"

    def status(self) -> str:
        state = "ended" if self.ended_at is not None else "running" if self.started_at is not None else "idle"
        if state == "running" and self._clock.now() >= (self.started_at or 0.0) + self.training.dies_after_s:
            state = "dead"
        code = int(self.files[layout.EXIT]) if layout.EXIT in self.files else None
        seen = {
            "now": self._clock.now(),
            "box": state,
            "exit_code": code,
            "lease": "dead" if self._is_disarmed else "armed",
            "lease_ends_at": self._lease_ends_at(),
            "onstart_step": self._onstart_step(),
            "log_bytes": len(self.files.get(layout.LOG, b"")),
            "received_mb": self.training.received_mb,
            "supervisor": {
                "step": self.step(),
                "steps": self.training.steps,
                "loss": 0.5,
                "ranks": self._ranks() if state == "running" else [],
                **self.training.supervisor,
            },
        }
        return json.dumps(seen)

    def _lease_ends_at(self) -> float:
        life_ends_at = self._lease_from + self._life_s
        if self.ended_at is None:
            return life_ends_at
        return min(life_ends_at, self.ended_at + self._lease_s["COLLECT"])

    def _ranks(self) -> list[dict[str, object]]:
        lives_s = self._clock.now() - (self.started_at or 0.0)
        if lives_s < self.training.imports_s:
            return []
        beat = (
            {"step": self.step(), "activity": "forward"}
            if self.training.beats
            else {"step": 0, "activity": ""}
        )
        first = RANKS * self.node
        return [
            {"rank": rank, "pid": 100 + rank, **beat, "age_s": 0.1} for rank in range(first, first + RANKS)
        ]

    def _finish(self, at: float) -> None:
        self.ended_at = at
        outcome = self._success()
        if self.training.outcome is not None:
            outcome = self.training.outcome(outcome)
        self._leave(outcome if self.training.writes_outcome else None, self.training.exit_code)

    def _stop(self, at: float) -> None:
        self.ended_at = at
        cause = self.files[layout.STOP].decode().strip()
        ranks = tuple(RankEnd(rank=r, exit_code=143, reason="stopped") for r in range(self._world_size))
        stopped = replace(
            self._success(),
            reason="stopped",
            detail="stopped after a checkpoint",
            stop_cause=cause,
            ranks=ranks,
            final_record=False,
            steps_done=self.step(),
        )
        if self.training.stopped is not None:
            stopped = self.training.stopped(stopped)
        self._leave(stopped, REASONS[stopped.reason].exit_code)

    @property
    def _world_size(self) -> int:
        return RANKS * self.nodes

    def end_as(self, outcome: Outcome) -> None:
        """Its supervisor has heard how the ranks of another node ended, and ends its own."""
        if self.started_at is not None and self.ended_at is None:
            self.ended_at = self._clock.now()
            self._leave(outcome, 1)

    def outcome_of(self, reason: str, detail: str, rank: int | None = None) -> Outcome:
        """How its training ended for that reason, by that rank."""
        failed = None if rank is None else RankEnd(rank=rank, exit_code=1, reason="error")
        return replace(
            self._success(), reason=reason, detail=detail, first_failure=failed, final_record=False
        )

    def _success(self) -> Outcome:
        checkpoint = self._save(self.training.steps)
        return Outcome(
            kind=self.training.kind,
            reason="finished",
            detail="",
            started_at=self.started_at or 0.0,
            ended_at=self.ended_at or 0.0,
            world_size=self._world_size,
            ranks=tuple(RankEnd(rank=r, exit_code=0, reason="finished") for r in range(self._world_size)),
            final_record=self.node == 0,
            steps_done=self.training.steps,
            steps_planned=self.training.steps,
            last_loss=0.1,
            loss_finite=True,
            checkpoint=checkpoint,
        )

    def _save(self, step: int) -> CheckpointEnd | None:
        """The checkpoint of that step is there, the newest of the last two. They lie on node 0."""
        if step == 0 or self.node:
            return None
        folder = f"{layout.CHECKPOINTS}/step-{step:06}"
        path, state = f"{folder}/state.pt", f"weights after step {step}".encode()
        inner = replace(_sum(path, state), path="state.pt")
        self.files[path] = state
        self.files[f"{folder}/manifest.json"] = json.dumps({"step": step, "files": [asdict(inner)]}).encode()
        latest = {"step": step, "path": posixpath.basename(folder)}
        self.files[f"{layout.CHECKPOINTS}/latest.json"] = (json.dumps(latest) + "\n").encode()
        kept = sorted(
            {posixpath.dirname(p) for p in self.files if p.startswith(f"{layout.CHECKPOINTS}/step-")}
        )
        for old in [p for p in self.files if posixpath.dirname(p) in kept[:-2]]:
            del self.files[old]
        return CheckpointEnd(step=step, path=folder, intact=True)

    def _leave(self, outcome: Outcome | None, exit_code: int) -> None:
        self._log("the end")
        step = {"step": "50-train", "exit_code": exit_code, "seconds": 1.0}
        self.files[layout.STEPS] = (json.dumps(step) + "\n").encode()
        self.files |= self.training.leaves
        if outcome is not None:
            self.files[layout.OUTCOME] = outcome.to_json().encode()
        if self.training.writes_manifest:
            listed = {path: self.files[path] for path in sorted(self.files) if path.startswith("run/")}
            self.files[layout.MANIFEST] = manifest_of(listed)
        self.files[layout.EXIT] = f"{exit_code}\n".encode()

    def _tell(self, step: int) -> None:
        """The metrics of a step that was done."""
        if step == 0 or self.node:
            return
        line = json.dumps({"step": step, "loss": round(self.training.loss / (1 + step), 4)})
        self.files[layout.METRICS] = self.files.get(layout.METRICS, b"") + f"{line}\n".encode()

    def _log(self, text: str, *, source: str = "rank0") -> None:
        line = f"{self._clock.now():.3f} {source} {self.training.says(text)}\n".encode()
        self.files[layout.LOG] = self.files.get(layout.LOG, b"") + line


def manifest_of(files: Mapping[str, bytes], **about: object) -> bytes:
    """The list of these files, as a box writes it."""
    listed = [asdict(_sum(path, content)) for path, content in files.items()]
    return json.dumps({**about, "files": listed}).encode()


def _sum(path: str, content: bytes) -> FileChecksum:
    return FileChecksum(path=path, size=len(content), sha256=hashlib.sha256(content).hexdigest())
