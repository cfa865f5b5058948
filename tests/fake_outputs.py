"""Fakes of what a launcher ships to a box, and of where it keeps what it downloads."""

import hashlib
import json
import math
from dataclasses import dataclass, field, replace
from pathlib import Path

from vastrun.contract import layout
from vastrun.contract.data_files import DataReceipt
from vastrun.launcher import core
from vastrun.launcher.bundle.local_data import sized
from vastrun.launcher.core.job import JobSpec
from vastrun.launcher.core.left_out import NONE_LEFT_OUT
from vastrun.launcher.gate.box_reader import parse_evidence, parse_exit_code
from vastrun.launcher.ports import Remote


class FakePacker:
    """One small bundle in `folder`."""

    data: core.DataContents | None = None
    """What is sent besides."""

    def __init__(self, folder: Path, *, secrets: bytes = b"") -> None:
        self._path = folder / "bundle.tar.gz"
        self._secrets = secrets

    def check(self, spec: JobSpec, *, is_own_job: bool = True) -> JobSpec:
        return sized(spec)

    def keep_code(self, spec: JobSpec) -> JobSpec:
        return spec

    def changed_code(self, spec: JobSpec) -> list[str]:
        return []

    def pack(self, run: core.Run, spec: JobSpec) -> core.Bundle:
        content = f"bundle of {run.id}".encode()
        self._path.write_bytes(content)
        return core.Bundle(
            path=str(self._path), size=len(content), sha256=hashlib.sha256(content).hexdigest()
        )

    def data_contents(self, run: core.Run, spec: JobSpec) -> core.DataContents | None:
        return self.data

    def pack_data(self, run: core.Run, spec: JobSpec, lacks: DataReceipt) -> tuple[str, int]:
        return str(self._path), 1

    def secrets(self, spec: JobSpec, run: core.Run | None = None) -> bytes:
        return self._secrets

    def known_secrets(self, spec: JobSpec, run: core.Run) -> bytes | None:
        return self._secrets

    def lease(self) -> str:
        return "#!/bin/bash\n"


@dataclass
class FakeOutputStore:
    """An output store in memory. Outlives launchers when it is handed on, as a disk does."""

    home: dict[str, bytes] = field(default_factory=dict)
    log: str = ""
    not_shown: int = 0
    """Bytes of the log that come after the training."""
    not_offered: core.LeftOutFiles = NONE_LEFT_OUT
    """Files that the box does not offer."""
    true_size: int = 0
    """Bytes of each of them, where the box lies; 0: it does not."""
    fetched: set[str] = field(default_factory=set)
    """Of these, those that were downloaded by their path."""

    def check_unused(self, run: core.Run) -> None:
        pass

    def check(self, run: core.Run) -> None:
        pass

    def save_start_script(self, run: core.Run, text: str) -> None:
        self.home["onstart.sh"] = text.encode()

    def download_log(self, run: core.Run, remote: Remote) -> str:
        new = remote.read(layout.LOG, offset=len(self.log)).decode()
        self.log += new
        return new

    def download_checkpoint(self, run: core.Run, remote: Remote, *, limit: int) -> core.CheckpointCopy | None:
        latest = f"{layout.CHECKPOINTS}/latest.json"
        named = remote.read(latest)
        if not named or named == self.home.get(latest):
            return None
        name = json.loads(named)["path"]
        state = f"{layout.CHECKPOINTS}/{name}/state.pt"
        self.home[state] = remote.read(state)
        self.home[latest] = named
        return core.CheckpointCopy(name=name, size=len(self.home[state]), held=len(self.home[state]))

    def download_metrics(self, run: core.Run, remote: Remote) -> int:
        held = len(self.home.get(layout.METRICS, b""))
        new = remote.read(layout.METRICS, offset=held)
        if new:
            self.home[layout.METRICS] = self.home.get(layout.METRICS, b"") + new
        return len(new)

    def collect(self, run: core.Run, remote: Remote) -> core.CollectResult:
        self.download_log(run, remote)
        damaged: list[str] = []
        for entry in json.loads(remote.read(layout.MANIFEST) or b'{"files": []}')["files"]:
            content = remote.read(entry["path"])
            self.home[entry["path"]] = content
            if hashlib.sha256(content).hexdigest() != entry["sha256"]:
                damaged.append(entry["path"])
        evidence = parse_evidence(
            remote.read(layout.OUTCOME),
            remote.read(layout.STEPS),
            parse_exit_code(remote.read(layout.EXIT)),
            damaged=tuple(damaged),
        )
        size = sum(map(len, self.home.values()))
        return core.CollectResult(
            evidence=replace(evidence, left_out=self.not_offered),
            files=len(self.home),
            bytes=size,
            log_bytes_not_shown=self.not_shown,
        )

    def fetch(
        self, run: core.Run, remote: Remote, path: str | None, *, max_bytes: float = math.inf
    ) -> core.PullResult:
        remote.read(layout.EXIT)
        taken = {
            file.path
            for file in self.not_offered.files
            if path in (None, file.path) and (self.true_size or file.size) <= max_bytes
        }
        self.fetched |= taken
        return core.PullResult(files=len(taken), bytes=0)

    def left_out(self, run: core.Run) -> core.LeftOutFiles:
        return self.not_offered.without(self.fetched)

    def describe(self, run: core.Run, now: float) -> None:
        pass
