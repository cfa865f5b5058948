"""Fakes behind the ports: a clock, a market that outlives launchers, boxes that train by the clock."""

from __future__ import annotations

import hashlib
import itertools
import json
import posixpath
import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from launcher.errors import GoneError, NoOfferError, UnreachableError
from launcher.job import JobSpec, Limits, Resources, Success
from launcher.model import (
    Collected,
    Completed,
    Event,
    Instance,
    Offer,
    Order,
    Parcel,
    Run,
    Wish,
)
from launcher.ports import Remote
from trainer import layout
from trainer.config import TrainConfig
from trainer.outcome import CheckpointEnd, FileSum, Outcome, RankEnd

PRICE = 3.6
"""Dollars an hour: 0.001 dollars a second."""


class FakeClock:
    """Time that passes only when somebody waits for it."""

    def __init__(self, now: float = 1_800_000_000.0) -> None:
        self._now = now

    def now(self) -> float:
        return self._now

    def sleep(self, seconds: float) -> None:
        self._now += seconds


@dataclass(frozen=True, kw_only=True)
class Training:
    """What a fake box does once it is started."""

    seconds: float = 20.0
    steps: int = 10
    outcome: Callable[[Outcome], Outcome] | None = None
    """Changes the outcome of a success into that of another ending."""
    exit_code: int = 0
    writes_outcome: bool = True


class FakeBox:
    """One rented machine: files, a lease and a training, all functions of the clock."""

    def __init__(self, instance: Instance, order: Order, training: Training, clock: FakeClock) -> None:
        self.instance = instance
        self.training = training
        self.files: dict[str, bytes] = {"lease.sh": order.onstart.encode()}
        self.modes: dict[str, int] = {}
        self.started_at: float | None = None
        self.stop_at: float | None = None
        self.ended_at: float | None = None
        self._told_step: int | None = None
        self._env = order.env
        self._clock = clock

    def lease_end(self) -> float | None:
        """When the lease ended this machine; None while it lives."""
        now, born = self._clock.now(), self.instance.rented_at
        ends = [born + float(self._env["LEASE_LIFE_S"])]
        if self.started_at is None:
            ends.append(born + float(self._env["LEASE_SHIP_S"]))
        if self.ended_at is not None:
            ends.append(self.ended_at + float(self._env["LEASE_COLLECT_S"]))
        return min(ends) if min(ends) <= now else None

    def advance(self) -> None:
        """Everything that should have happened by now has."""
        now = self._clock.now()
        self.files[layout.LEASE_STATE] = b"state=armed\n"
        stop_from = (
            self.instance.rented_at + float(self._env["LEASE_LIFE_S"]) - float(self._env["LEASE_GRACE_S"])
        )
        if now >= stop_from:
            self.files.setdefault(layout.STOP, self._env["LEASE_LIFE_CAUSE"].encode())
        if self.started_at is None or self.ended_at is not None:
            return
        if layout.STOP in self.files and self.stop_at is None:
            self.stop_at = now
        over_at = self.started_at + self.training.seconds
        if now >= over_at:
            self._finish(over_at)
        elif self.stop_at is not None and now >= self.stop_at + 2:
            self._stop(now)
        elif self.step() != self._told_step:
            self._told_step = self.step()
            self._log(f"step {self.step()}")

    def step(self) -> int:
        if self.started_at is None:
            return 0
        done = ((self.ended_at or self._clock.now()) - self.started_at) / self.training.seconds
        return min(self.training.steps, int(done * self.training.steps))

    def status(self) -> str:
        state = "ended" if self.ended_at is not None else "running" if self.started_at is not None else "idle"
        code = int(self.files[layout.EXIT]) if layout.EXIT in self.files else None
        seen = {
            "now": self._clock.now(),
            "box": state,
            "exit_code": code,
            "lease": "armed",
            "onstart_step": "50-train" if self.started_at is not None else "",
            "log_bytes": len(self.files.get(layout.LOG, b"")),
            "supervisor": {"step": self.step(), "steps": self.training.steps, "loss": 0.5, "ranks": []},
        }
        return json.dumps(seen)

    def _finish(self, at: float) -> None:
        self.ended_at = at
        outcome = self._success()
        if self.training.outcome is not None:
            outcome = self.training.outcome(outcome)
        self._leave(outcome if self.training.writes_outcome else None, self.training.exit_code)

    def _stop(self, at: float) -> None:
        self.ended_at = at
        cause = self.files[layout.STOP].decode().strip()
        ranks = tuple(RankEnd(rank=r, exit_code=143, reason="stopped") for r in range(2))
        stopped = replace(
            self._success(),
            reason="stopped",
            detail="stopped after a checkpoint",
            stop_cause=cause,
            ranks=ranks,
            final_record=False,
            steps_done=self.step(),
        )
        self._leave(stopped, 143)

    def _success(self) -> Outcome:
        state = b"weights"
        path = f"{layout.CHECKPOINTS}/step-{self.training.steps:06}/state.pt"
        self.files[path] = state
        checkpoint = CheckpointEnd(
            step=self.training.steps, path=posixpath.dirname(path), files=(_sum(path, state),), intact=True
        )
        return Outcome(
            kind="train",
            reason="finished",
            detail="",
            started_at=self.started_at or 0.0,
            ended_at=self.ended_at or 0.0,
            world_size=2,
            ranks=tuple(RankEnd(rank=r, exit_code=0, reason="finished") for r in range(2)),
            final_record=True,
            steps_done=self.training.steps,
            steps_planned=self.training.steps,
            last_loss=0.1,
            loss_finite=True,
            checkpoint=checkpoint,
        )

    def _leave(self, outcome: Outcome | None, exit_code: int) -> None:
        self._log("the end")
        step = {"step": "50-train", "exit_code": exit_code, "seconds": 1.0}
        self.files[layout.STEPS] = (json.dumps(step) + "\n").encode()
        if outcome is not None:
            self.files[layout.OUTCOME] = outcome.to_json().encode()
        listed = [
            {"path": path, "size": len(content), "sha256": hashlib.sha256(content).hexdigest()}
            for path, content in sorted(self.files.items())
            if path.startswith("run/")
        ]
        self.files[layout.MANIFEST] = json.dumps({"files": listed}).encode()
        self.files[layout.EXIT] = f"{exit_code}\n".encode()

    def _log(self, text: str) -> None:
        line = f"{self._clock.now():.3f} rank0 {text}\n".encode()
        self.files[layout.LOG] = self.files.get(layout.LOG, b"") + line


class FakeProvider:
    """A market that outlives the launchers: hand the same one to a second launcher."""

    name = "fake"
    free = False

    def __init__(
        self, clock: FakeClock, *, training: Training | None = None, usd_per_hour: float = PRICE
    ) -> None:
        self.clock = clock
        self.training = training or Training()
        self.usd_per_hour = usd_per_hour
        self.taken: set[str] = set()
        self.cut_off = False
        """No box answers while this is set; the market itself does."""
        self.bill_usd = 0.0
        self.most_at_once = 0
        self._boxes: dict[str, FakeBox] = {}
        self._ids = itertools.count(1)

    def search(self, spec: JobSpec) -> Sequence[Offer]:
        return [
            Offer(
                id=f"offer-{n}",
                host=f"host-{n}",
                gpu_name="RTX 4090",
                gpus=spec.resources.gpus,
                gpu_memory_gb=24.0,
                disk_gb=100.0,
                usd_per_hour=self.usd_per_hour,
                description="2 x RTX 4090",
            )
            for n in range(1, 8)
        ]

    def rent(self, order: Order) -> Instance:
        if order.offer.id in self.taken:
            raise NoOfferError("taken")
        self._settle()
        instance = Instance(
            id=str(next(self._ids)),
            label=order.label,
            state="running",
            usd_per_hour=order.offer.usd_per_hour,
            rented_at=self.clock.now(),
            host=order.offer.host,
        )
        self._boxes[instance.id] = FakeBox(instance, order, self.training, self.clock)
        self.most_at_once = max(self.most_at_once, len(self._boxes))
        return instance

    def instances(self) -> Sequence[Instance]:
        self._settle()
        return [box.instance for box in self._boxes.values()]

    def connect(self, instance: Instance) -> Remote:
        self.box(instance.id)
        return FakeRemote(self, instance.id)

    def destroy(self, instance_id: str) -> None:
        self._settle()
        self._end(instance_id, self.clock.now())

    def box(self, instance_id: str) -> FakeBox:
        """The living box, up to date. Raises as a Remote does."""
        self._settle()
        if instance_id not in self._boxes:
            raise GoneError(f"no such machine: {instance_id}")
        if self.cut_off:
            raise UnreachableError("connection timed out")
        box = self._boxes[instance_id]
        box.advance()
        return box

    def vanish(self) -> None:
        """Every machine is lost at once, as when its host dies."""
        for instance_id in list(self._boxes):
            self._end(instance_id, self.clock.now())

    def _settle(self) -> None:
        """Leases that ran out have ended their machines."""
        for instance_id, box in list(self._boxes.items()):
            if not self.cut_off:
                box.advance()
            ended = box.lease_end()
            if ended is not None:
                self._end(instance_id, ended)

    def _end(self, instance_id: str, at: float) -> None:
        box = self._boxes.pop(instance_id, None)
        if box is not None:
            self.bill_usd += (at - box.instance.rented_at) / 3600 * box.instance.usd_per_hour


class FakeRemote:
    """A shell on a fake box that knows the commands a launcher sends."""

    def __init__(self, provider: FakeProvider, instance_id: str) -> None:
        self._provider = provider
        self._id = instance_id

    def run(self, command: str, *, timeout_s: float) -> Completed:
        box = self._box()
        if command == "bash onstart/status.sh":
            return Completed(exit_code=0, stdout=box.status() + "\n", stderr="")
        if command == "bash onstart/run.sh start":
            box.started_at = box.started_at or self._provider.clock.now()
            return Completed(exit_code=0, stdout="", stderr="")
        if command.startswith("bash onstart/run.sh stop "):
            box.files.setdefault(layout.STOP, shlex.split(command)[-1].encode())
            return Completed(exit_code=0, stdout="", stderr="")
        unpack = re.match(r"echo '(\w+)  (\S+)' \| sha256sum", command)
        assert unpack is not None, f"a fake box does not know {command!r}"
        if hashlib.sha256(box.files.get(unpack[2], b"")).hexdigest() != unpack[1]:
            return Completed(exit_code=1, stdout="", stderr="checksum")
        box.files[layout.SHIPPED] = b""
        return Completed(exit_code=0, stdout="", stderr="")

    def put(self, local_path: str, path: str) -> None:
        self._box().files[path] = Path(local_path).read_bytes()

    def write(self, path: str, content: bytes, *, mode: int = 0o600) -> None:
        box = self._box()
        box.files[path] = content
        box.modes[path] = mode

    def read(self, path: str, *, offset: int = 0, limit: int = 1 << 20) -> bytes:
        return self._box().files.get(path, b"")[offset : offset + limit]

    def close(self) -> None:
        pass

    def _box(self) -> FakeBox:
        return self._provider.box(self._id)


class FakePacker:
    """One small parcel in `folder`."""

    def __init__(self, folder: Path, *, secrets: bytes = b"") -> None:
        self._path = folder / "bundle.tar.gz"
        self._secrets = secrets

    def pack(self, run: Run, spec: JobSpec) -> Parcel:
        content = f"bundle of {run.id}".encode()
        self._path.write_bytes(content)
        return Parcel(path=str(self._path), size=len(content), sha256=hashlib.sha256(content).hexdigest())

    def secrets(self, spec: JobSpec) -> bytes:
        return self._secrets

    def lease(self) -> str:
        return "#!/bin/bash\n"


@dataclass
class FakeShelf:
    """A shelf in memory. Outlives launchers when it is handed on, as a disk does."""

    home: dict[str, bytes] = field(default_factory=dict)
    log: str = ""

    def check(self, run: Run) -> None:
        pass

    def pump(self, run: Run, remote: Remote) -> str:
        new = remote.read(layout.LOG, offset=len(self.log)).decode()
        self.log += new
        return new

    def collect(self, run: Run, remote: Remote) -> Collected:
        self.pump(run, remote)
        damaged = []
        for entry in json.loads(remote.read(layout.MANIFEST) or b'{"files": []}')["files"]:
            content = remote.read(entry["path"])
            self.home[entry["path"]] = content
            if hashlib.sha256(content).hexdigest() != entry["sha256"]:
                damaged.append(entry["path"])
        exit_code = remote.read(layout.EXIT).decode().strip()
        return Collected(
            outcome_json=remote.read(layout.OUTCOME).decode() or None,
            steps_jsonl=remote.read(layout.STEPS).decode() or None,
            exit_code=int(exit_code) if exit_code else None,
            files=len(self.home),
            bytes=sum(map(len, self.home.values())),
            damaged=tuple(damaged),
        )


@dataclass
class FakeScreen:
    """Remembers what was shown."""

    events: list[Event] = field(default_factory=list)
    logs: str = ""

    def event(self, event: Event) -> None:
        self.events.append(event)

    def log(self, text: str) -> None:
        self.logs += text

    def progress(self, run: Run, *, loss: float | None, usd: float) -> None:
        pass


@dataclass
class FakeWishes:
    """Wishes at given moments: {epoch seconds: wish}."""

    clock: FakeClock
    at: Mapping[float, Wish] = field(default_factory=dict)

    def current(self) -> Wish:
        due = [wish for moment, wish in sorted(self.at.items()) if moment <= self.clock.now()]
        return due[-1] if due else Wish.NONE


def train_job(*, steps: int = 10, **changes: object) -> JobSpec:
    """A job for the onboard trainer on two GPUs."""
    job = JobSpec(
        name="demo",
        resources=Resources(gpus=2),
        limits=Limits(hours=1.0, usd=3.0),
        train=TrainConfig(steps=steps, batch=8),
    )
    return replace(job, **changes)  # type: ignore[arg-type]


def command_job(**changes: object) -> JobSpec:
    """A job that runs the user's own command on two GPUs."""
    job = train_job(train=None, command=("python", "train.py"), success=Success(exit_code=0))
    return replace(job, **changes)  # type: ignore[arg-type]


def _sum(path: str, content: bytes) -> FileSum:
    return FileSum(path=path, size=len(content), sha256=hashlib.sha256(content).hexdigest())
