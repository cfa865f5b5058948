"""Jobs that are packed, and the bundles unpacked again."""

import io
import subprocess
import tarfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from tests.jobs import TrainJob
from tests.runs import a_run
from vastrun.contract import layout
from vastrun.launcher.bundle import Bundler
from vastrun.launcher.config import dump_job
from vastrun.launcher.core import NOTHING, Bundle, Origin, Run
from vastrun.launcher.core.job import Code, JobSpec
from vastrun.trainer.job.config import TrainConfig

SPEC = TrainJob(name="job", train=TrainConfig(steps=7))


def job_with(code: Path, *exclude: str) -> JobSpec:
    return replace(SPEC, code=Code(path=str(code), exclude=exclude))


def run_of(spec: JobSpec, out_dir: str = "/nowhere") -> Run:
    return a_run(job=spec.name, spec_json=dump_job(spec), out_dir=out_dir)


def members(content: bytes) -> dict[str, tarfile.TarInfo]:
    with tarfile.open(fileobj=io.BytesIO(content)) as tar:
        return {entry.name: entry for entry in tar}


def unpacked(archive: bytes) -> dict[str, bytes]:
    """Every file of the archive."""
    with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
        return {entry.name: reader.read() for entry in tar if (reader := tar.extractfile(entry))}


def files_of(bundle: Bundle) -> dict[str, bytes]:
    return unpacked(Path(bundle.path).read_bytes())


def packed(spec: JobSpec, *, origin: Origin = NOTHING) -> Mapping[str, bytes]:
    """Every file of the bundle."""
    with Bundler({}, origin=origin) as bundler:
        return files_of(bundler.pack(run_of(spec), spec))


def shipped_code(spec: JobSpec) -> dict[str, tarfile.TarInfo]:
    return members(packed(spec)[layout.CODE_ARCHIVE])


def code_of(bundle: Bundle) -> str:
    """What `train.py` is on the box."""
    return unpacked(files_of(bundle)[layout.CODE_ARCHIVE])["train.py"].decode()


def write_files(folder: Path, files: Mapping[str, str]) -> None:
    """Each text at its path below the folder."""
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)


def git(folder: Path, *words: str) -> None:
    who = ["-c", "user.name=n", "-c", "user.email=e@example.org", "-c", "protocol.file.allow=always"]
    subprocess.run(["git", *who, "-C", str(folder), *words], check=True, capture_output=True)
