"""The bundle: all that a box needs, in one archive that is the same for the same job."""

from __future__ import annotations

import hashlib
import json
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Self

from vastrun.contract import layout
from vastrun.contract.data_files import DataReceipt, SentFile, contents_of
from vastrun.launcher.bundle.archive import Archive, CodeStore, changed_files, check_script, must_be_readable
from vastrun.launcher.bundle.checkout import MACOS_METADATA, Worktree, code_tree, data_in_code, secret_files
from vastrun.launcher.bundle.local_data import LocalData, LocalFile, list_text, sent_files, sized
from vastrun.launcher.bundle.outgoing import outgoing_files, walk
from vastrun.launcher.bundle.secret_command import CommandSecrets
from vastrun.launcher.bundle.secret_values import SecretValues
from vastrun.launcher.bundle.shared_jobs import SharedJob, SharedJobs
from vastrun.launcher.config import program_of
from vastrun.launcher.config.data_rules import disk_fault
from vastrun.launcher.config.program_kinds import program_spec
from vastrun.launcher.core import NOTHING, Bundle, DataContents, Origin, Run
from vastrun.launcher.core.errors import JobValueError, StorageError, UsageError
from vastrun.launcher.core.job import Code, JobSpec, Secret
from vastrun.launcher.core.secrets import Mask, public_values, values_in
from vastrun.launcher.package_files import library_dir, onstart_dir

_CHECKPOINTS = 2
"""Number of newest checkpoints shipped with a run that continues from them."""
_OWN_PACKAGE = "vastrun"


ValuesOf = Callable[[str, str], Mapping[str, Any]]


class Bundler:
    """Packs bundles into a temporary folder that goes with it. `Packer` says what each verb promises.

    `environment` is where secrets are looked up. `origin` is what the run continues from. `values_of` gives
    the values of a batch's point, by the batch's name and the point's id.
    """

    def __init__(
        self,
        environment: Mapping[str, str],
        *,
        origin: Origin = NOTHING,
        values_of: ValuesOf = lambda _batch, _point: {},
        codes: CodeStore | None = None,
        data: LocalData | None = None,
        shared_jobs: SharedJobs | None = None,
        commands: CommandSecrets | None = None,
    ) -> None:
        """`codes`, `data`: None: they go with this. `shared_jobs`: of a team; None: all jobs are this
        computer's. `commands`: of the process.
        """
        self._values = SecretValues(environment, commands or CommandSecrets(environment))
        self._origin = origin
        self._values_of = values_of
        self._shared = shared_jobs
        self._shared_job: tuple[str, SharedJob] | None = None
        """The last one of another computer's, with the run's id."""
        self._scratch: tempfile.TemporaryDirectory[str] | None = None
        self.codes = CodeStore(self._folder() / "codes", set) if codes is None else codes
        """The code that was submitted."""
        self.data = LocalData(self._folder() / "data") if data is None else data
        """The files of this computer that jobs name as data."""
        self._digests: dict[tuple[Code, tuple[Secret, ...]], str] = {}
        """Digests of the code that this has kept: a batch has the same for each point."""
        self._packed: tuple[str, JobSpec, Bundle] | None = None
        """The last bundle, with the run and the job that it is of."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Remove the packed archives."""
        if self._scratch is not None:
            self._scratch.cleanup()
            self._scratch = self._packed = None

    def check(self, spec: JobSpec, *, is_own_job: bool = True) -> JobSpec:
        self._values.stored(spec.secrets)
        self._values.printed(spec.secrets, is_own_job=is_own_job or self._shared is None)
        check_script(spec)
        if spec.code is not None:
            tree = _shipped(spec)
            if (program := program_of(spec)).package:
                _must_not_hide_vastrun(tree, program.key)
            for file in tree.files:
                if file.target is None:
                    must_be_readable(file.path)
        spec = sized(spec)
        if fault := disk_fault(spec):
            raise JobValueError(f"data: {fault}")
        return spec

    def keep_code(self, spec: JobSpec) -> JobSpec:
        with _packing_errors():
            spec = self.data.with_digests(spec, secret_files(spec))
        if spec.code is None or spec.code_digest is not None:
            return spec
        key = (spec.code, spec.secrets)
        if key not in self._digests:
            mask = Mask(values_in(self._values.stored(spec.secrets)))
            with _packing_errors():
                self._digests[key] = self.codes.add(_shipped(spec), mask.hide)
        return replace(spec, code_digest=self._digests[key])

    def changed_code(self, spec: JobSpec) -> list[str]:
        # A row of another computer's may name any folder of this one.
        if spec.code is None or (record := self.codes.record(spec.code_digest)) is None:
            return []
        try:
            return changed_files(record, _shipped(spec))
        except (UsageError, OSError):
            return []

    def data_contents(self, run: Run, spec: JobSpec) -> DataContents | None:
        if (data := self._local_data(run, spec)) is None:
            return None
        sizes = tuple(files[0].size for files in contents_of(sent_files(data)))
        return DataContents(sizes=sizes, withheld=tuple(str(file.path) for file in data if not file.sent))

    def pack_data(self, run: Run, spec: JobSpec, lacks: DataReceipt) -> tuple[str, int]:
        path, data = self._folder() / f"{run.id}.data", self._local_data(run, spec) or []
        with _packing_errors():
            return str(path), self.data.pack(data, path, lacks, measure=run.usd_per_hour > 0)

    def _local_data(self, run: Run, spec: JobSpec) -> list[LocalFile] | None:
        """Return the job's local data, once it was submitted; None: it has none.

        Another computer's job reads no file of this one.
        """
        local = [file for file in spec.data if not file.url]
        if local and self._shared is not None and not self._shared.is_home(run):
            there = run.home.partition("~")[0] or "another computer"
            raise UsageError(f"the data of {run.id} are files on {there}", hint="resume it there")
        is_submitted = any(file.sha256 for file in local)
        return self.data.load(spec, secret_files(spec)) if is_submitted else None

    def pack(self, run: Run, spec: JobSpec) -> Bundle:
        # What was weighed before a machine was rented is what is shipped; to pack it again costs more than
        # all else that a launcher computes for a run.
        known = self._packed
        if known is not None and known[:2] == (run.id, spec) and Path(known[2].path).exists():
            return known[2]
        with _packing_errors():
            path = self._folder() / f"{run.id}.tar.gz"
            self._write(path, run, spec)
            with path.open("rb") as file:
                sha256 = hashlib.file_digest(file, "sha256").hexdigest()
            bundle = Bundle(path=str(path), size=path.stat().st_size, sha256=sha256)
        self._packed = run.id, spec, bundle
        return bundle

    def secrets(self, spec: JobSpec, run: Run | None = None) -> bytes:
        is_own_job = run is None or self._shared is None
        return self._stored(spec, run) + self._values.printed(spec.secrets, is_own_job=is_own_job)

    def known_secrets(self, spec: JobSpec, run: Run) -> bytes | None:
        printed = self._values.remembered(spec.secrets)
        return None if printed is None else self._stored(spec, run) + printed

    def _stored(self, spec: JobSpec, run: Run | None) -> bytes:
        """The secrets that no command prints; of another computer's run, those that it has kept."""
        if run is not None and _has_stored_secrets(spec) and (job := self._from_home(run, spec)):
            return job.secrets
        return self._values.stored(spec.secrets)

    def lease(self) -> str:
        return (onstart_dir() / layout.LEASE_SCRIPT).read_text(encoding="utf-8")

    def _from_home(self, run: Run, spec: JobSpec) -> SharedJob | None:
        """Return the shared job of another computer; None when the job was read here."""
        if self._shared is None or self._shared.is_home(run):
            return None
        if self._shared_job is None or self._shared_job[0] != run.id:
            self._shared_job = run.id, self._shared.load(run, spec.code_digest)
        return self._shared_job[1]

    def _code(self, path: Path, run: Run, spec: JobSpec) -> tuple[Path | None, dict[str, Any] | None]:
        """Return the job's code, packed next to `path`, and its description; None without code."""
        code = path.with_suffix(".code")
        if spec.code is None and not _has_stored_secrets(spec):
            return None, None
        job = self._from_home(run, spec)
        if job is not None:
            if job.code is not None:
                code.write_bytes(job.code)
            return (None if job.code is None else code), job.about
        about, packed, digest = None, None, self.keep_code(spec).code_digest
        if digest is not None:
            packed, record = self.codes.archive(digest), self.codes.record(digest)
            if record is None or not packed.is_file():
                raise UsageError(
                    f"the code of {run.id} as it was submitted is gone from {packed.parent}",
                    hint="vastrun launch JOB.yaml   ships the code as it is now",
                )
            about = {"digest": digest, **asdict(record.origin)}
        if self._shared is not None:
            content = None if packed is None else packed.read_bytes()
            self._shared.save(
                run, spec.code_digest, SharedJob(code=content, about=about, secrets=self._stored(spec, None))
            )
        return packed, about

    def _folder(self) -> Path:
        if self._scratch is None:
            with _packing_errors():
                self._scratch = tempfile.TemporaryDirectory(prefix="vastrun-")
        return Path(self._scratch.name)

    def _write(self, path: Path, run: Run, spec: JobSpec) -> None:
        # An archive within the archive: a step of its own unpacks the code, whose failure is the user's.
        code, about = self._code(path, run, spec)
        with Archive(path) as archive:
            # What this run continues, as the user says: the ledger, or the URL of a run.
            url = spec.checkpoints.start_from
            continues = [*self._origin.continues, *([url.rstrip("/").rpartition("/")[2]] if url else [])]
            values = public_values(self._values_of(run.batch, run.point)) if run.batch else {}
            job = _job(run, spec, about) | {
                "pushed": self._origin.pushed,
                "continues": continues,
                "batch": {"name": run.batch, "values": values} if run.batch else None,
            }
            archive.add_bytes(layout.JOB, json.dumps(job, indent=1).encode())
            for pattern in ("*.sh", "steps.d/*.sh"):
                _add_folder(archive, layout.ONSTART, onstart_dir(), pattern, 0o755)
            package = f"{layout.PACKAGES}/{_OWN_PACKAGE}"
            _add_folder(archive, package, library_dir(), "*.py", 0o644)
            for name in ("contract", "integrations", "onstart"):
                _add_folder(archive, f"{package}/{name}", library_dir() / name, "**/*.py", 0o644)
            _add_folder(archive, f"{package}/onstart", onstart_dir(), "boot/*.sh", 0o644)
            shipped = program_spec(spec)
            if shipped.folder is not None:
                place = f"{layout.PACKAGES}/{shipped.package.replace('.', '/')}"
                for pattern in ("**/*.py", "requirements.txt"):
                    _add_folder(archive, place, shipped.folder, pattern, 0o644)
            if code is not None:
                archive.add_file(layout.CODE_ARCHIVE, code)
            if (data := self._local_data(run, spec)) is not None:
                code_links = (
                    SentFile(
                        path=f"../{layout.CODE}/{path}",
                        target=f"{'../' * len(Path(path).parts)}{layout.DATA}/{name}",
                    )
                    for path, name in data_in_code(spec).items()
                )
                archive.add_bytes(layout.DATA_LIST, list_text((*sent_files(data), *code_links)).encode())
            if self._origin.folder is not None:
                _add_resume(archive, self._origin.folder)


def _shipped(spec: JobSpec) -> Worktree:
    """Find the code to ship: without the files that hold the job's secrets, which travel beside it."""
    tree, is_secret = code_tree(spec), secret_files(spec)
    return replace(tree, files=tuple(file for file in tree.files if not is_secret(file.path)))


def _has_stored_secrets(spec: JobSpec) -> bool:
    """Return whether the job has secrets that no command prints."""
    return any(secret.command is None for secret in spec.secrets)


def _must_not_hide_vastrun(tree: Worktree, key: str) -> None:
    """Raise JobValueError for a module `vastrun` in the code: the ranks import both in one process."""
    for name in tree.paths:
        top = name.partition("/")[0].removesuffix(".py")
        if top == _OWN_PACKAGE and name.endswith(".py"):
            raise JobValueError(
                f"code.path: it has a module named {top}, which `{key}:` imports itself",
                hint=f"rename {tree.root / name.partition('/')[0]}, or leave it out with code.exclude",
            )


def _job(run: Run, spec: JobSpec, code: dict[str, Any] | None) -> dict[str, Any]:
    """Return the job as the box reads it."""
    return {
        "run_id": run.leader or run.id,
        "name": spec.name,
        "ranks": spec.ranks_per_node,
        "nodes": spec.nodes,
        "gpus": spec.resources.gpus,
        "program": asdict(program_spec(spec)),
        "hold": None if spec.hold is None else asdict(spec.hold),
        "stall_s": spec.limits.stall_s,
        "start_s": spec.limits.start_s,
        "setup": spec.setup,
        "env": dict(spec.env),
        "success": None if spec.success is None else asdict(spec.success),
        "outputs": spec.outputs,
        "outputs_gb": spec.outputs_gb,
        "checkpoints": _snapshots(spec),
        "data": [asdict(f) | {"path": f.target, "max_bytes": f.max_bytes} for f in spec.data if f.url],
        "push": spec.checkpoints.push,
        "start_from": spec.checkpoints.start_from,
        "restarts": None if spec.restarts is None else dict(spec.restarts),
        "code": code,
    }


def _snapshots(spec: JobSpec) -> dict[str, Any] | None:
    """Several machines have no common moment, and a program that keeps records saves on its own."""
    if spec.nodes > 1 or program_spec(spec).keeps_records:
        return None
    named = spec.checkpoints
    kept = {"files": named.files, "keep": named.keep, "every_s": named.every_s}
    return {**kept, "max_gb": spec.limits.snapshot_gb}


def _add_folder(archive: Archive, name: str, folder: Path, pattern: str, mode: int) -> None:
    """The folder's files. Their modes are ours: an installer may have changed those on disk."""
    for path in sorted(folder.glob(pattern)):
        archive.add_file(f"{name}/{path.relative_to(folder).as_posix()}", path.resolve(), mode=mode)


def _add_resume(archive: Archive, folder: Path) -> None:
    root = folder.resolve()
    made = [manifest.parent for manifest in root.glob("step-*/manifest.json")]
    # The newest is shipped, and one more in case that is damaged.
    left_out = set(sorted(made, key=lambda path: (len(path.name), path.name))[:-_CHECKPOINTS])
    names = sorted(name for name in walk(root) if not name.endswith(MACOS_METADATA)) if root.is_dir() else ()
    found = (file for file in outgoing_files(root, names) if file.path.is_file())
    files = [file for file in found if left_out.isdisjoint(file.path.parents)]
    if not files:
        raise UsageError(f"nothing to continue from: no checkpoint in {folder}")
    for file in files:
        archive.add_file(f"{layout.RESUME}/{file.name}", file.path.resolve())


@contextmanager
def _packing_errors() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        hint = "free some space, or set TMPDIR to another folder"
        raise StorageError(f"cannot pack the job: {error.strerror or error}", hint=hint) from error
