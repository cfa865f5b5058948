"""Jobs that are kept for the computers of a team: the code and the secrets that only one of them has."""

from __future__ import annotations

import base64
import hashlib
import json
from dataclasses import dataclass

from vastrun.launcher.core import Run
from vastrun.launcher.core.errors import UsageError
from vastrun.launcher.ports import SecretStore

MAX_CODE_BYTES = 32 << 20
"""Maximum bytes of packed code that is shared."""


@dataclass(frozen=True, kw_only=True)
class SharedJob:
    """Code and secrets of a job, which only the computer that read it has."""

    code: bytes | None
    """The archive; None: it has none."""
    about: dict[str, object] | None
    """Description of the code for the box."""
    secrets: bytes


class SharedJobs:
    """Keeps what its own computer's jobs ship, and finds what others' do."""

    def __init__(self, store: SecretStore | None, here: str) -> None:
        """`store`: None where this computer has no key to it. `here`: its name within the team."""
        self._store, self._here = store, here
        self._saved_digests: dict[str, str] = {}
        """Digest last stored, by name: a batch ships the same code for each point."""

    def is_home(self, run: Run) -> bool:
        """Return whether the run's job was read on this computer."""
        return run.home == self._here

    def save(self, run: Run, digest: str | None, job: SharedJob) -> None:
        """Let other computers begin a retry or the next point. Raises StorageError."""
        if self._store is None or (job.code is not None and len(job.code) > MAX_CODE_BYTES):
            return
        head = {
            "about": job.about,
            "secrets": base64.b64encode(job.secrets).decode(),
            "has_code": job.code is not None,
        }
        name, content = _names(run, digest)[0], json.dumps(head).encode() + b"\n" + (job.code or b"")
        of_all = hashlib.sha256(content).hexdigest()
        if self._saved_digests.get(name) != of_all:
            self._store.replace(name, content)
            self._saved_digests[name] = of_all

    def load(self, run: Run, digest: str | None) -> SharedJob:
        """Return what another computer has kept. Raises UsageError when there is nothing."""
        names = _names(run, digest)
        for name in names:
            content = None if self._store is None else self._store.get(name)
            if content is not None and self._store is not None:
                if name != names[0]:
                    self._store.replace(names[0], content)  # for a retry of this one
                head, _, code = content.partition(b"\n")
                fields = json.loads(head)
                return SharedJob(
                    code=code if fields["has_code"] else None,
                    about=fields["about"],
                    secrets=base64.b64decode(fields["secrets"]),
                )
        there = run.home.partition("~")[0] or "another computer"
        why = f"VASTRUN_TEAM_KEY was not set there, or the code is larger than {MAX_CODE_BYTES >> 20} MB"
        raise UsageError(
            f"the code and the secrets of {run.id} are only on {there}: "
            f"{'VASTRUN_TEAM_KEY is not set here' if self._store is None else why}",
            hint="export VASTRUN_TEAM_KEY=…   (the same on all computers, before a job is launched)",
        )


def _names(run: Run, digest: str | None) -> list[str]:
    """Return the names under which it may be stored, its own first."""
    if run.batch:  # its points have the same code, until it is submitted with another
        return [f"job of batch {run.batch}{'' if digest is None else f' {digest}'}"]
    return [f"job of {run.id}", *([f"job of {run.parent}"] if run.parent else [])]
