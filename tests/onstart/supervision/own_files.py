"""Files as the programs of users save them, and a watcher that looks at them with a clock of its own."""

import json
import os
import pickle
import struct
import subprocess
import zipfile
from dataclasses import dataclass, field
from pathlib import Path

from vastrun.contract import layout
from vastrun.contract.checkpoint_folder import newest_first
from vastrun.contract.job import JobCheckpoints
from vastrun.onstart.supervision.checkpoint_restore import restore_newest
from vastrun.onstart.supervision.checkpoint_watcher import CheckpointWatcher


@dataclass(kw_only=True)
class Watching:
    """A box with a program's folder, and the watcher on it."""

    box: Path
    pattern: str = "checkpoints/*"
    keep: int = 2
    every_s: float = 1.0
    said: list[str] = field(default_factory=list)
    now: float = 1000.0

    def __post_init__(self) -> None:
        self.code.mkdir(parents=True)
        settings = JobCheckpoints(files=self.pattern, keep=self.keep, every_s=self.every_s)
        self.watcher = CheckpointWatcher(
            box=self.box, run_id="calm-heron-3f1a", settings=settings, say=self.said.append
        )
        self.watcher.begin()

    @property
    def code(self) -> Path:
        return self.box / layout.CODE

    def path(self, name: str) -> Path:
        """A place below the program's folder, whose parent is there."""
        path = self.code / name
        path.parent.mkdir(parents=True, exist_ok=True)
        return path

    def poll(self, times: int = 1, *, after_s: float = 2.0) -> None:
        for _ in range(times):
            self.now += after_s
            self.watcher.poll(self.now)

    def taken(self) -> list[str]:
        """The names of the checkpoints taken, the newest first."""
        return [path.name for path in newest_first(self.box / layout.CHECKPOINTS)]

    def content(self, name: str) -> bytes:
        """Of the newest checkpoint's file."""
        return (newest_first(self.box / layout.CHECKPOINTS)[0] / "files" / name).read_bytes()

    def restore(self) -> str:
        """The path that the program would continue from, relative to the box."""
        path = restore_newest(self.box, self.watcher.settings, self.said.append)
        return os.path.relpath(path, self.box) if path else ""


def torch_like(path: Path, value: object = 0) -> None:
    """As `torch.save`: a zip file whose directory is written last."""
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("archive/data.pkl", pickle.dumps(value))


def safetensors_like(path: Path, values: bytes = bytes(24)) -> None:
    """As `safetensors.torch.save_file`: a header that says where each tensor ends, then the tensors."""
    tensors = {
        name: {"dtype": "F32", "shape": [len(values) // 8], "data_offsets": [begin, begin + len(values) // 2]}
        for name, begin in (("w", 0), ("b", len(values) // 2))
    }
    header = json.dumps({"__metadata__": {"format": "pt"}, **tensors}).encode()
    path.write_bytes(struct.pack("<Q", len(header)) + header + values)


def hugging_face_like(folder: Path, value: str, *, finished: bool = True) -> None:
    """As the Trainer of Hugging Face."""
    folder.mkdir(parents=True)
    (folder / "training_args.bin").write_bytes(pickle.dumps(value))
    (folder / "optimizer.pt").write_bytes(value.encode())
    if finished:
        (folder / "trainer_state.json").write_text(json.dumps({"global_step": 1}))


def dcp_like(folder: Path, value: str, *, finished: bool = True) -> None:
    """As `torch.distributed.checkpoint`."""
    folder.mkdir(parents=True)
    for rank in range(2):
        (folder / f"__{rank}_0.distcp").write_bytes(f"{value} of rank {rank}".encode())
    if finished:
        (folder / ".metadata").write_bytes(b"places")


class Writer:
    """A child of this process that has a file open for writing, until it is told to go on."""

    def __init__(self, path: Path) -> None:
        self._process = subprocess.Popen(
            ["sh", "-c", 'exec 3>"$1"; printf half >&3; echo open; read _; printf " whole" >&3', "sh", path],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == b"open\n"

    def finish(self) -> None:
        self._process.communicate(b"\n")

    def kill(self) -> None:
        self._process.kill()
        self._process.communicate()
