"""Profile: a trace of a training's next steps, requested of its machine and downloaded while it runs."""

from __future__ import annotations

import json
from contextlib import closing, suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from vastrun.contract import layout
from vastrun.contract.outcome import FileChecksum
from vastrun.contract.profiling import (
    FileDigest,
    ProfileRequest,
    ProfileResponse,
    operations_path,
    trace_path,
)
from vastrun.launcher.config import read_job
from vastrun.launcher.core import Phase, Run
from vastrun.launcher.core.errors import BoxError, ProviderError, UsageError, VastrunError
from vastrun.launcher.flow.machines import find_machines
from vastrun.launcher.flow.progress import TRAIN
from vastrun.launcher.flow.services import Services
from vastrun.launcher.gate import caps
from vastrun.launcher.gate.box_reader import fetch_profile_response, fetch_status
from vastrun.launcher.gate.caps import ExchangeBudget
from vastrun.launcher.gate.manifest import PULLING
from vastrun.launcher.outputs.collect import download_files
from vastrun.launcher.outputs.disk import disk_errors
from vastrun.launcher.outputs.download import part_path
from vastrun.launcher.outputs.folder import Outputs
from vastrun.launcher.ports import Remote

_POLL_S = 1.0
_LOOK_S = 10.0
"""Seconds between two checks that the training continues."""
_WITHDRAW_S = 10.0
_IN_THE_JOB = "set train.profile in the job file and launch it again: docs/profiling.md"
_BEFORE = (Phase.PLAN, Phase.RENT, Phase.BOOT, Phase.SHIP)


@dataclass(frozen=True, kw_only=True)
class DownloadedProfile:
    """A profile on this computer."""

    step: int
    """First recorded step."""
    trace: Path
    operations: Path


def profile(run: Run, services: Services, request: ProfileRequest, *, timeout_s: float) -> DownloadedProfile:
    """Request a profile of the next steps, wait for it and download it.

    Raises UsageError when there is no training to profile, VastrunError when no trace comes in time.
    """
    _must_train(run)
    machines = find_machines(run, services.provider)
    if not machines:
        raise UsageError(f"{run.id} no longer has a machine", hint=_IN_THE_JOB)
    services.output_store.check(run)
    with closing(services.provider.connect(machines[0])) as remote:
        return _Exchange(run, services, remote, request, services.clock.now() + timeout_s).run()


def _must_train(run: Run) -> None:
    """Raise UsageError for a run whose row already says that there is no training to profile."""
    spec = read_job(run.spec_json)
    if spec.hold is not None:
        raise UsageError(f"{run.id} holds a machine for other runs: name one of those", hint="vastrun status")
    if spec.train is None:
        raise UsageError(
            f"{run.id} runs your own program, not the onboard trainer: vastrun cannot profile it",
            hint="use torch.profiler in it, and write the trace to $VASTRUN_OUTPUTS: docs/profiling.md",
        )
    if run.phase in _BEFORE:
        raise UsageError(f"{run.id} is not training yet (phase {run.phase})", hint=f"vastrun status {run.id}")
    if run.phase is not Phase.TRAIN:
        raise UsageError(f"{run.id} has finished training (phase {run.phase})", hint=_IN_THE_JOB)


@dataclass(frozen=True)
class _Exchange:
    """One request and its response."""

    profiled: Run
    services: Services
    remote: Remote
    request: ProfileRequest
    until: float

    def run(self) -> DownloadedProfile:
        self._must_go_on(is_first=True)
        self.remote.write(layout.PROFILE_REQUEST, json.dumps(asdict(self.request)).encode())
        try:
            response = self._response()
        except BaseException:
            self._withdraw()
            raise
        if response.trace is None or response.operations is None:
            raise VastrunError(f"{self.profiled.id} recorded no profile: {response.fault}")
        return DownloadedProfile(
            step=response.step,
            trace=self._download(trace_path(response.step), response.trace),
            operations=self._download(operations_path(response.step), response.operations),
        )

    def _response(self) -> ProfileResponse:
        clock = self.services.clock
        look_at = clock.now() + _LOOK_S
        while True:
            response = fetch_profile_response(self.remote, self.request.id)
            if response is not None:
                return response
            self._must_be_in_time()
            if clock.now() >= look_at:
                self._must_go_on()
                look_at = clock.now() + _LOOK_S
            clock.sleep(_POLL_S)

    def _must_go_on(self, *, is_first: bool = False) -> None:
        """Raise UsageError when the box does not train."""
        status = fetch_status(self.remote)
        name = self.profiled.id
        if status.box in ("ended", "dead"):
            raise UsageError(f"{name} has finished training", hint=_IN_THE_JOB)
        if is_first and (status.box == "idle" or status.onstart_step != TRAIN):
            step = f" (set-up step {status.onstart_step})" if status.onstart_step else ""
            raise UsageError(f"{name} is not training yet{step}", hint=f"vastrun status {name}")

    def _must_be_in_time(self) -> None:
        if self.services.clock.now() >= self.until:
            raise VastrunError(
                f"{self.profiled.id} sent no profile in time; the request is withdrawn",
                hint="a step may take long, or a compiled model compile: try --timeout 30m",
            )

    def _withdraw(self) -> None:
        """Remove the request, so that nothing is recorded that is not waited for."""
        with suppress(ProviderError):
            self.remote.run(f"rm -f {layout.PROFILE_REQUEST}", timeout_s=_WITHDRAW_S)

    def _download(self, path: str, digest: FileDigest) -> Path:
        file = FileChecksum(path=path, size=digest.size, sha256=digest.sha256)
        outputs, allowance = Outputs(self.profiled), caps.EXCHANGES["outputs"]
        budget = ExchangeBudget(allowance, check=self._must_be_in_time, now=self.services.clock.now)
        place = outputs.path(path)
        with disk_errors(outputs.folder):
            try:
                if download_files(outputs.folder, {place: file}, self.remote, budget, PULLING):
                    raise BoxError(f"{path} does not match the machine's checksum")
            finally:  # of another request there is another trace
                part_path(outputs.folder, file, PULLING).unlink(missing_ok=True)
        return place
