"""A box in memory, whose files an output store downloads."""

from pathlib import Path

from tests.fakebox import manifest_of
from tests.jobs import train_job
from tests.runs import a_run
from vastrun.contract import layout
from vastrun.contract.outcome import Outcome
from vastrun.launcher.config import dump_job
from vastrun.launcher.core import CommandResult, Phase, Run
from vastrun.launcher.core.errors import UnreachableError

OUTCOME = Outcome(
    kind="train", reason="finished", detail="", started_at=0.0, ended_at=1.0, world_size=1, ranks=()
)
LINES = "1.000 rank0 step 1\n1.500 rank0 gemäß\n"


class ReadOnlyBox:
    """Commands and writes are an error."""

    def run(self, command: str, *, timeout_s: float) -> CommandResult:
        raise AssertionError("an output store runs nothing")

    def put(self, local_path: str, path: str) -> None:
        raise AssertionError("an output store writes nothing")

    def write(self, path: str, content: bytes, *, mode: int = 0o600) -> None:
        raise AssertionError("an output store writes nothing")

    def close(self) -> None:
        pass


class MemoryBox(ReadOnlyBox):
    """A Remote that only reads, from a dictionary."""

    def __init__(self, files: dict[str, bytes]) -> None:
        self.files = files
        self.asked: list[str] = []
        self.reads_left = 10**9
        """Of outputs, before the cable is pulled."""
        self.flips: set[str] = set()
        """Files whose first read is damaged on the way."""

    def read(self, path: str, *, offset: int = 0, limit: int = 1 << 20) -> bytes:
        if path.startswith(layout.OUTPUTS):
            if not self.reads_left:
                raise UnreachableError("cable pulled")
            self.reads_left -= 1
        self.asked.append(path)
        content = self.files.get(path, b"")[offset : offset + limit]
        if path in self.flips:
            self.flips.remove(path)
            return bytes([content[0] ^ 1]) + content[1:]
        return content


def box_with(files: dict[str, bytes], *, manifest: dict[str, bytes] | None = None) -> MemoryBox:
    """A box that has ended, whose manifest names `files`, or what `manifest` says."""
    ended = {layout.EXIT: b"0\n", layout.LEASE_LOG: b"armed\n", layout.LOG: LINES.encode()}
    return MemoryBox(
        {**ended, **files, layout.MANIFEST: manifest_of(files if manifest is None else manifest)}
    )


def run_in(folder: Path) -> Run:
    return a_run(job="job", spec_json=dump_job(train_job()), phase=Phase.COLLECT, out_dir=str(folder))


def files_in(folder: str) -> dict[str, bytes]:
    root = Path(folder)
    return {p.relative_to(root).as_posix(): p.read_bytes() for p in root.rglob("*") if p.is_file()}
