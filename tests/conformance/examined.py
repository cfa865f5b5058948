"""Examined: a conformance run of this process on emulated Vast, and a deviation for each assumption."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from tests.conformance import assumptions as fields
from tests.conformance.assumptions import Value
from tests.conformance.examination import conformance_job, record_of, settled
from tests.conformance.observed_vast import ObservedVast
from tests.conformance.recorder import ApiRecorder, Record
from tests.e2e.fast_launcher import FastLauncher
from tests.e2e.market import machines
from tests.e2e.terminal import STUB_TORCH
from tests.emulators.machines import Machine, here_mb
from vastrun.launcher.api.runs import start_run
from vastrun.launcher.commands.attempts import Attempts
from vastrun.launcher.core import Origin
from vastrun.launcher.core.errors import VastrunError
from vastrun.launcher.flow.services import Services
from vastrun.launcher.providers.vast import VastProvider, transport
from vastrun.launcher.providers.vast.transport import VastAccount

SETS = (
    *("train=null", "command=python -c 'print(\"all is well\")'", "success.log=all is well"),
    f"env.PYTHONPATH={STUB_TORCH}",
    "resources.down_mbps=2",
)
"""The job is a program that needs no torch, and content with a box that a busy computer makes slow."""
USD = 0.25
SETTLEMENT_S = 10.0
"""Later all charges are there."""


@dataclass(frozen=True, kw_only=True)
class Deviation:
    """What a Vast does that is not as assumed."""

    value: Value
    factor: float = 8.0
    """How fast time passes."""
    watch_s: float = 3.0
    """How long a machine is looked for."""


def _of(usual: Mapping[str, str], **words: str) -> Deviation:
    return Deviation(value={**usual, **words})


DEVIATIONS: Mapping[str, Deviation] = {
    "offer.fields": _of(fields.OFFER, dlperf="missing"),
    "offer.units": _of(fields.UNITS, reliability="percent"),
    "limit.searches": Deviation(value=8.0),
    "limit.list": Deviation(value="200 success"),
    "offer.cluster": Deviation(value="others as well"),
    "overlay.list": Deviation(value="404 not_found"),
    "clock.ahead": Deviation(value=300.0),
    "key.bad": Deviation(value="400 auth_error"),
    "create.answer": Deviation(value="200 object"),
    "create.fields": _of(fields.CREATE, new_contract="text"),
    "create.seconds": Deviation(value=5.0),  # of this computer's, forty of the emulator's
    "create.state": Deviation(value="unknown"),
    "create.label": Deviation(value="other"),
    "create.image": Deviation(value="other"),
    "create.price": Deviation(value=1.5),
    "create.again": Deviation(value="200 success"),
    "new.by_id": Deviation(value=9.0, watch_s=20),
    "new.in_list": Deviation(value=75.0, watch_s=80),
    "new.by_label": Deviation(value=75.0, watch_s=80),
    "key.attach": Deviation(value="400 invalid_args"),
    "instance.fields": _of(fields.INSTANCE, status_msg="number"),
    "instance.running": _of(fields.RUNNING, uptime_mins="null"),
    "list.fields": _of(fields.INSTANCE, status_msg="number"),
    "list.counts": Deviation(value="fewer"),
    "instance.start": Deviation(value=120.0),
    "instance.uptime": Deviation(value=-60.0),
    "instance.memory": Deviation(value="other"),
    "loading.seconds": Deviation(value=320.0, factor=20.0),
    "onstart.sha256": Deviation(value="other"),
    "box.container_id": Deviation(value="other"),
    "box.key": Deviation(value="absent"),
    "box.session_key": Deviation(value="present"),
    "key.own_row": Deviation(value="403"),
    "key.list": Deviation(value="200"),
    "key.account": Deviation(value="200"),
    "log.seconds": Deviation(value=75.0, watch_s=80),
    "log.host_keys": Deviation(value="others"),
    "ssh.direct": Deviation(value="does not open"),
    "ssh.proxy": Deviation(value="does not open"),
    "box.gpus": Deviation(value=0.0),
    "box.gpu_memory": Deviation(value=0.5),
    "box.memory": Deviation(value=0.5),
    "box.disk": Deviation(value=0.5),
    "box.cuda": Deviation(value=-1.0),
    "download.billed": Deviation(value=0.6),
    "download.seconds": Deviation(value=45.0, watch_s=60),
    "schedule.answer": Deviation(value="401 unauthorized"),
    "schedule.again": Deviation(value="200 object"),
    "schedule.early": Deviation(value="yes"),
    "schedule.removed": Deviation(value="400 invalid_args"),
    "destroy.answer": Deviation(value="202 success"),
    "destroy.again": Deviation(value="400 invalid_args"),
    "gone.by_id": Deviation(value=45.0),
    "gone.in_list": Deviation(value=70.0),
    "gone.again": Deviation(value="yes", watch_s=15),
    "gone.answer": Deviation(value="400 invalid_args", factor=20.0),
    "unknown.answer": Deviation(value="400 invalid_args"),
    "charge.fields": _of(fields.CHARGE, metadata="missing"),
    # More than a tail of five minutes explains.
    "charge.gpu": Deviation(value=30.0),
    "charge.disk": Deviation(value=30.0),
    "charge.total": Deviation(value=30.0),
}


class Examined(FastLauncher):
    """Use it in a `with`."""

    def __init__(
        self,
        folder: Path,
        seen: Mapping[str, Value] | None = None,
        *,
        factor: float = 8.0,
        watch_s: float = 3.0,
    ) -> None:
        super().__init__(folder, factor=factor, market=honest_machines(5), seen=seen)
        account = VastAccount(key=self.vast.account_key, server=self.vast.url, login=self.vast.login)
        self._recorder = ApiRecorder()
        connect = self._recorder.recording(transport.connect, self._clock.now)
        self._provider = VastProvider(account, folder / "state", clock=self._clock, connect=connect)
        self._observed = ObservedVast(
            self._provider,
            self._recorder,
            lambda: False,
            download_url=f"{self.vast.url}/download/2000000",
            watch_s=watch_s,
        )

    def examine(self) -> Record:
        """The record of a run, with its bill."""
        now = self._clock.now()
        spec = conformance_job(USD, SETS, now)
        attempts = Attempts(services_for=self._services, new_id=self._new_id)
        run = start_run(
            attempts, spec, provider="vast", run_id=self._new_id(), out=self._folder / "out", parent=None
        )
        try:
            run = attempts.drive_or_follow(run)
        except VastrunError:
            run = self.ledger.get(run.id)
        self._observed.check_after_run()
        record = record_of(self._recorder, run, now, self._clock.now())
        if not record.instance:
            return record
        self._clock.sleep(SETTLEMENT_S)
        return settled(record, self._provider, self._recorder, self._clock.now())

    def _services(self, provider: str, origin: Origin) -> Services:
        return replace(super()._services(provider, origin), provider=self._observed)


def honest_machines(count: int) -> list[Machine]:
    """Of two GPUs, and twice the memory that a box has: each of them comes with half."""
    return [replace(machine, gpus=2, cpu_ram_mb=2 * here_mb()) for machine in machines(count)]
