"""Terminal: the command line on a fake market, with a real ledger and real outputs folders."""

import contextlib
import itertools
import json
import random
import signal
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import IO, Any

from click.testing import CliRunner, Result

from tests.documents import hold_to_schema
from tests.fake_outputs import FakePacker
from tests.fakebox import Training
from tests.fakes import PRICE, FakeClock, FakeProvider
from tests.jobs import FakeForeteller
from vastrun.contract.outcome import Hang, Outcome, RankEnd
from vastrun.launcher.app import App
from vastrun.launcher.cli import cli
from vastrun.launcher.commands.export import Exporter
from vastrun.launcher.commands.rehearse import Rehearsal
from vastrun.launcher.core import Instance, Offer, RentalOrder, UserRequest
from vastrun.launcher.core.job import JobSpec
from vastrun.launcher.core.labels import new_id
from vastrun.launcher.guard import GuardThread
from vastrun.launcher.ledger.presence import Presence
from vastrun.launcher.ledger.sqlite import SqliteLedger
from vastrun.launcher.notifications import Sender
from vastrun.launcher.outputs.store import FolderStore
from vastrun.launcher.ui.interrupts import Interrupts
from vastrun.launcher.ui.render.index import index_of
from vastrun.launcher.ui.render.notifications import notification_document
from vastrun.launcher.ui.report.run_page import page_of
from vastrun.launcher.ui.screen import StreamScreen, TerminalCapabilities
from vastrun.launcher.ui.screens import PlainScreens

JOB = """\
name: demo
resources: {gpus: 2}
limits: {hours: 1, usd: 3}
train: {steps: 10, batch: 8}
"""

SEGFAULT = RankEnd(rank=1, exit_code=-11, signal="SIGSEGV", step=4, activity="backward")


def segfault(outcome: Outcome) -> Outcome:
    """The outcome of a training whose rank 1 crashed."""
    return replace(
        outcome,
        reason="signal",
        detail="rank 1 was killed by SIGSEGV",
        ranks=(outcome.ranks[0], SEGFAULT),
        first_failure=SEGFAULT,
        final_record=False,
        steps_done=4,
    )


def hang(outcome: Outcome) -> Outcome:
    """The outcome of a training whose rank 1 stood still."""
    stuck = Hang(
        rank=1,
        step=7,
        activity="forward",
        stalled_s=61.0,
        frame="model.py:33 forward",
        stacks=("run/stacks/rank-0.txt", "run/stacks/rank-1.txt"),
    )
    return replace(outcome, reason="hang", detail="rank 1 stood still", hang=stuck, final_record=False)


CRASH = Training(outcome=segfault, exit_code=1)
HANG = Training(outcome=hang, exit_code=1)


class Market(FakeProvider):
    """A market whose machines train one after the other as `trainings` says; the last goes for all others."""

    def __init__(self, clock: FakeClock, trainings: list[Training], *, usd_per_hour: float) -> None:
        super().__init__(clock, usd_per_hour=usd_per_hour)
        self.free = usd_per_hour == 0
        self.deaf = False
        """Agrees to destroy a machine and does not, while this is set."""
        self.change: Callable[[Sequence[Offer]], Sequence[Offer]] = lambda offers: offers
        """What a search makes of the offers."""
        self._trainings = trainings
        self.destroyed: list[str] = []
        """Machines that it was asked to destroy."""

    def search(self, spec: JobSpec) -> Sequence[Offer]:
        return self.change(super().search(spec))

    def rent(self, order: RentalOrder) -> Instance:
        self.training = self._trainings[0]
        if len(self._trainings) > 1:
            self._trainings.pop(0)
        return super().rent(order)

    def destroy(self, instance_id: str) -> None:
        self.destroyed.append(instance_id)
        if not self.deaf:
            super().destroy(instance_id)


class FastInterrupts(Interrupts):
    """Waits by a fake clock; what is in `later` happens once its moment has come."""

    clock: FakeClock
    later: list[tuple[float, Callable[[], None]]]

    def now(self) -> float:
        return self.clock.now()

    def sleep(self, seconds: float) -> None:
        self.clock.sleep(seconds)
        time.sleep(0)  # what the command waits for may be another thread, which needs the interpreter
        while self.later and self.later[0][0] <= self.clock.now():
            self.later.pop(0)[1]()


class Terminal:
    """`type` a command; look at what it left in `ledger`, `market` and `folder`."""

    def __init__(
        self,
        folder: Path,
        *trainings: Training,
        usd_per_hour: float = PRICE,
        who: str = "desk:1:1.0",
        clock: FakeClock | None = None,
    ) -> None:
        self.folder = self.stands_in = folder
        self.estimator = FakeForeteller()
        folder.mkdir(exist_ok=True)
        self.clock = clock or FakeClock()
        self.market = Market(self.clock, list(trainings) or [Training()], usd_per_hour=usd_per_hour)
        self.ledger = SqliteLedger(Path(":memory:"), now=self.clock.now, alive=lambda _: True)
        self.later: list[tuple[float, Callable[[], None]]] = []
        self.who = who
        self.environ: dict[str, str] = {}
        self.browsed: list[str] = []
        """Addresses that a browser was to show."""
        self.has_browser = True
        self.guard = GuardThread(0.05, now=time.process_time)
        """Its gaps are what this process computes between two looks: another one's load adds nothing."""
        self.job = folder / "job.yaml"
        self.job.write_text(JOB)
        self._chances = itertools.count()
        self._launches = 0

    def type(self, *arguments: str, keys: str | IO[bytes] = "") -> Result:
        """The command's end. `keys` reach its standard input, which is no terminal.

        It is typed in `stands_in`, a folder of the test's own.
        What it prints with --json is held to its schema.
        """
        with contextlib.chdir(self.stands_in):
            end = CliRunner().invoke(cli, arguments, obj=self.app(), input=keys)
        hold_to_schema(arguments, end.stdout)
        return end

    def launch(self, *options: str) -> Result:
        self._launches += 1
        out = self.folder / ("out" if self._launches == 1 else f"out-{self._launches}")
        return self.type("launch", str(self.job), "-y", "--out", str(out), *options)

    def document(self, *arguments: str) -> Any:
        """What the command prints with --json."""
        return json.loads(self.type(*arguments, "--json").stdout)

    def press(self, *, after_s: float) -> None:
        """Ctrl-C, once so much time has passed."""
        self.at(after_s, lambda: signal.raise_signal(signal.SIGINT))

    def at(self, after_s: float, happens: Callable[[], None]) -> None:
        self.later.append((self.clock.now() + after_s, happens))

    def machines(self) -> int:
        """How many are rented."""
        return self.market.rented

    def app(self) -> App:
        return App({}).with_changes(
            state=self.folder,
            cache=self.folder / "cache",
            image_lock=self.folder / "image.lock",
            config_file=self.folder / "config.yaml",
            drivers=None,
            user="",
            who=lambda: self.who,
            secrets=tuple,
            private_words=dict,
            presence=Presence(self.folder / "launchers"),
            ledger=lambda: self.ledger,
            provider=lambda _: self.market,
            shared_provider=lambda _: self.market,
            packer=lambda _: FakePacker(self.folder),
            output_store=lambda: FolderStore(
                index=index_of, report=lambda run, now: page_of(self.ledger, run, now)
            ),
            notifier=lambda say: Sender(self.environ, say, notification_document),
            interrupts=self._interrupts,
            rehearsal=lambda box: Rehearsal(box, sys.executable, {}),
            exporter=lambda: Exporter(python=sys.executable, environment=self.environ),
            estimator=lambda: self.estimator,
            browse=self._browse,
            python=sys.executable,
            now=self.clock.now,
            new_id=lambda: new_id(random.Random(next(self._chances))),
            screens=PlainScreens(
                lambda began: StreamScreen(
                    sys.stderr, TerminalCapabilities(live=False, color=False), began=began, now=self.clock.now
                )
            ),
            guard=self.guard,
        )

    def _browse(self, address: str) -> bool:
        self.browsed.append(address)
        return self.has_browser

    def _interrupts(
        self,
        first: UserRequest = UserRequest.STOP,
        request: UserRequest = UserRequest.NONE,
        until: float | None = None,
        views: bool = False,
    ) -> Interrupts:
        first = UserRequest.STOP if first is UserRequest.NONE else first
        if request is UserRequest.DETACH:  # no driver takes it over here: one that did ended as it trained
            request = UserRequest.DETACH_ONCE_TRAINING
        interrupts = FastInterrupts(
            say=sys.stderr.write, first=first, request=request, until=until, views=views
        )
        interrupts.clock, interrupts.later = self.clock, self.later
        return interrupts
